"""The style and the script of the page that shows an explanation."""

STYLE = r"""
:root{color-scheme:light dark;--paper:#ffffff;--ink:#1f2933;--soft:#52606d;--line:#d5dbe1;--shade:#f3f5f7;
--mark:#1f6fc4;--good:#1d7a3d;--bad:#b3471d}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e4e8ec;--soft:#9fadba;--line:#36404a;--shade:#1e242b;
--mark:#7ab5f2;--good:#6fce8d;--bad:#f0926a}
[role=tabpanel] svg{filter:invert(.92) hue-rotate(180deg)}}
*{box-sizing:border-box}
[hidden]{display:none!important}
body{margin:0 auto;max-width:1500px;padding:1.2rem;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,'Segoe UI',Helvetica,Arial,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.8rem 0 .5rem}h3{font-size:1rem;margin:.2rem 0}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',Consolas,monospace;font-size:.86em;
overflow-wrap:anywhere}
pre{background:var(--shade);padding:.7rem;overflow:auto;max-height:34rem;tab-size:4}pre code{overflow-wrap:normal;
font-size:.92em}
.note,.ops span{color:var(--soft)}
.cards{display:flex;flex-wrap:wrap;gap:.7rem;margin:1rem 0}.card{border:1px solid var(--line);border-radius:8px;
padding:.5rem .9rem}
.card span{display:block;color:var(--soft);font-size:.85rem}.card b{font-variant-numeric:tabular-nums}
[role=tablist]{display:flex;gap:.3rem}
[role=tab]{font:inherit;padding:.3rem 1rem;border:1px solid var(--line);border-bottom:0;border-radius:8px 8px 0 0;
background:var(--shade);color:var(--soft);cursor:pointer}
[role=tab][aria-selected=true]{background:var(--paper);color:var(--ink);font-weight:600}
.views{display:grid;grid-template-columns:minmax(0,1fr) 22rem;gap:.8rem;border:1px solid var(--line);padding:.6rem}
@media (max-width:60rem){.views{grid-template-columns:minmax(0,1fr)}}
[role=tabpanel]{overflow:auto;max-height:75vh;grid-column:1;grid-row:1}
#verdict{grid-column:-2/-1;overflow-wrap:anywhere}@media (max-width:60rem){#verdict{grid-column:1}}
#verdict li{margin:.5rem 0}#verdict ul{padding-left:1.1rem}
.kind{font-size:.78rem;font-weight:700;text-transform:uppercase;color:var(--soft)}.kind-applied{color:var(--good)}
.kind-refused{color:var(--bad)}
a{color:var(--mark)}
:focus-visible{outline:3px solid var(--mark);outline-offset:1px}
g[data-op]{cursor:pointer}g[data-op].is-applied>rect{stroke-width:3}g[data-op].is-refused>rect{stroke-dasharray:7 3;
stroke-width:2.4}
g[data-op].chosen>rect{stroke:#c2185b;stroke-width:4}
article{border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem;margin:.6rem 0}article:target{
border-color:var(--mark);border-width:2px}
.ops{margin:.3rem 0;padding-left:1.2rem}
details>summary{cursor:pointer}
table{border-collapse:collapse;width:100%;font-size:.9rem;margin:.4rem 0}th,td{text-align:left;vertical-align:top;
padding:.25rem .5rem;border-bottom:1px solid var(--line)}
tr.set td:first-child{font-weight:700}
""".strip()

SCRIPT = r"""
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const verdict = document.getElementById("verdict");
  const tabs = Array.from(document.querySelectorAll("[role=tab]"));
  let chosen = null;

  function element(parent, tag, text, kind) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    parent.appendChild(made);
    return made;
  }

  function choose(view, focus) {
    for (const tab of tabs) {
      const mine = tab.id === "tab-" + view;
      tab.setAttribute("aria-selected", String(mine));
      tab.setAttribute("tabindex", mine ? "0" : "-1");
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !mine;
      if (mine && focus) tab.focus();
    }
  }

  function show(view, node) {
    const found = data[view][node.getAttribute("data-op")];
    if (chosen) chosen.classList.remove("chosen");
    chosen = node;
    node.classList.add("chosen");
    verdict.textContent = "";
    if (!found) {
      element(verdict, "p", "An operator of a control-flow body: fusions work on the main block.");
      return;
    }
    element(verdict, "h3", found.label);
    if (found.where) element(verdict, "p", found.where, "note");
    const list = element(verdict, "ul", "");
    for (const [kind, text, change, target] of found.notes) {
      const item = element(list, "li", "");
      element(item, "div", kind, "kind kind-" + kind);
      element(item, "div", text);
      if (change) element(item, "div", "To allow it: " + change + ".");
      if (target) element(item, "a", "more below").setAttribute("href", "#" + target);
    }
  }

  for (const view of ["before", "after"]) {
    const panel = document.getElementById("panel-" + view);
    if (!panel) continue;
    for (const node of panel.querySelectorAll("[data-op]")) {
      const found = data[view][node.getAttribute("data-op")];
      const kinds = found ? found.notes.map((note) => note[0]) : [];
      for (const kind of ["applied", "refused"]) if (kinds.includes(kind)) node.classList.add("is-" + kind);
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", found ? found.label : "operator of a body");
      node.addEventListener("click", () => show(view, node));
      node.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        show(view, node);
      });
    }
  }

  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => choose(tab.id.slice(4), false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) choose(tabs[(at + step + tabs.length) % tabs.length].id.slice(4), true);
    });
  });
})();
""".strip()
"""Shows an operator's notes when it is selected."""
