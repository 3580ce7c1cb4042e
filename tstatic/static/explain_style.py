"""The style of the page that shows an explanation, for light and dark, wide and narrow windows."""

STYLE = r"""
:root{color-scheme:light dark;--paper:#ffffff;--ink:#1f2933;--soft:#52606d;--line:#d5dbe1;--shade:#f3f5f7;
--mark:#1f6fc4;--good:#1d7a3d;--bad:#b3471d;--plain:#eef1f4;--edge:#8793a0;--chosen:#c2185b;--fill:85%;--rim:38%;--sat:70%}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e4e8ec;--soft:#9fadba;--line:#36404a;--shade:#1e242b;
--mark:#7ab5f2;--good:#6fce8d;--bad:#f0926a;--plain:#2a323b;--edge:#75828f;--chosen:#ff6fa3;--fill:27%;--rim:62%;--sat:48%}}
*{box-sizing:border-box}
[hidden]{display:none!important}
body{margin:0 auto;max-width:1500px;padding:1.2rem;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,'Segoe UI',Helvetica,Arial,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.8rem 0 .5rem}h3{font-size:1rem;margin:.2rem 0}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',Consolas,monospace;font-size:.86em;
overflow-wrap:anywhere}
pre{background:var(--shade);padding:.7rem;white-space:pre-wrap;tab-size:4}pre code{font-size:.92em}
.note,.ops span{color:var(--soft)}.note{overflow-wrap:anywhere}
.cards{display:flex;flex-wrap:wrap;gap:.7rem;margin:1rem 0}.card{border:1px solid var(--line);border-radius:8px;
padding:.5rem .9rem}
.card span{display:block;color:var(--soft);font-size:.85rem}.card b{font-variant-numeric:tabular-nums}
.bar{display:flex;flex-wrap:wrap;gap:.4rem .9rem;align-items:center;margin:.4rem 0}
[role=tablist],[role=toolbar]{display:flex;gap:.3rem}
button,input{font:inherit;color:var(--ink);background:var(--shade);border:1px solid var(--line);border-radius:6px;
padding:.2rem .7rem}
button{cursor:pointer}input{background:var(--paper);max-width:60vw}
[role=tab]{color:var(--soft)}
[role=tab][aria-selected=true]{background:var(--mark);border-color:var(--mark);color:var(--paper);font-weight:600}
.views{display:grid;grid-template-columns:minmax(0,1fr) 23rem;gap:.9rem;align-items:start}
#panel{position:relative;overflow:clip;border:1px solid var(--line);border-radius:8px;height:20rem;min-height:8rem;
background:var(--paper)}
#scene{display:block;width:100%;height:100%;touch-action:none;cursor:grab;user-select:none}
#scene.moving{cursor:grabbing}
#minimap{position:absolute;right:.5rem;bottom:.5rem;border:1px solid var(--line);border-radius:4px;
background:var(--paper);opacity:.92;cursor:pointer}
#verdict{overflow-wrap:anywhere;position:sticky;top:.6rem}#verdict li{margin:.5rem 0}#verdict ul{padding-left:1.1rem;margin:.4rem 0}
@media (max-width:60rem){.views{grid-template-columns:minmax(0,1fr)}html{scroll-padding-top:13rem}
#verdict{order:-1;top:0;z-index:1;height:11rem;overflow-y:auto;background:var(--paper);border-bottom:1px solid var(--line)}
#verdict h3,#verdict p{margin:.2rem 0}body{padding:.7rem}#minimap{width:110px;height:78px}}
.kind{font-size:.78rem;font-weight:700;text-transform:uppercase;color:var(--soft)}.kind-applied{color:var(--good)}
.kind-refused{color:var(--bad)}
a{color:var(--mark)}
:focus-visible{outline:3px solid var(--mark);outline-offset:1px}
#scene text{font:11px ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',Consolas,monospace;fill:var(--ink)}
#scene .type{font-weight:700;font-size:12px}#scene .sub,#scene .bytes{fill:var(--soft);font-size:11px}
#scene .title{font-size:12px;font-weight:600}
g[data-op],g[data-group]{cursor:pointer;outline:none}
.box{fill:var(--plain);stroke:var(--edge);stroke-width:1.2}
.kernel>.box{fill:hsl(var(--h) var(--sat) var(--fill));stroke:hsl(var(--h) 65% var(--rim));stroke-width:2}
.chip{fill:hsl(var(--h) 65% var(--rim))}
.is-refused>.box{stroke-dasharray:7 3;stroke-width:2.2}
.gone>.box{fill:none;stroke-dasharray:2 3}
.frame{fill:var(--shade);fill-opacity:.55;stroke:var(--line);stroke-width:1.2}
.head{fill:transparent}
.back{fill:var(--plain);stroke:var(--edge);stroke-width:1}
g:focus-visible>.box,g:focus-visible>.frame,g:focus-visible>.head{stroke:var(--mark);stroke-width:3.5}
g.hit>.box{stroke:var(--mark);stroke-width:3}
g.chosen>.box{stroke:var(--chosen);stroke-width:4}
path.edge{fill:none;stroke:var(--edge);stroke-width:1.3}path.across{opacity:.28}
path.edge.chosen{stroke:var(--chosen);opacity:1;stroke-width:2.4}
.bytes{pointer-events:none;paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}
.bytes.across{display:none}.bytes.across.chosen{display:inline}
.far .bytes,.far .sub{display:none}
article{border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem;margin:.6rem 0}article:target{
border-color:var(--mark);border-width:2px}
.ops{margin:.3rem 0;padding-left:1.2rem}
details>summary{cursor:pointer}
table{border-collapse:collapse;width:100%;font-size:.9rem;margin:.4rem 0}th,td{text-align:left;vertical-align:top;
padding:.25rem .5rem;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
tr.set td:first-child{font-weight:700}
@media (max-width:40rem){table{font-size:.8rem}th,td{padding:.2rem .25rem}}
""".strip()

__all__ = ["STYLE"]
