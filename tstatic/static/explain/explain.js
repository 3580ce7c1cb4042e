"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const scene = document.getElementById("scene");
  if (!scene) return;
  const [camera, panel, verdict, minimap, search, found] =
    ["camera", "panel", "verdict", "minimap", "search", "found"].map((id) => document.getElementById(id));
  const tabs = Array.from(document.querySelectorAll("[role=tab]"));
  const GAP = 20, ROW = 30, PAD = 12, HEAD = 24, HEIGHT = 36, COLUMN = 90, APART = 40;
  // Texts have 11 pixels at a scale of 1. A drawing is made at most so much larger, and its box so tall.
  const LEGIBLE = 1, LARGEST = 1.6, TALLEST = 3000;
  // What is tried: how tall columns are, and whether forward, backward and update stand one below the other.
  const TALLS = [Infinity, 1600, 1200, 900, 750, 620, 520, 430, 360, 300, 250, 200, 160, 130, 100, 60];
  const layout = { tall: Infinity, stacked: false, wide: Infinity };
  const views = {};
  let view = null, at = { x: 0, y: 0, k: 1 }, moved = false, width = 0, matches = [], match = -1;

  function html(parent, tag, text, kind) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    parent.appendChild(made);
    return made;
  }
  function draw(parent, tag, attributes, text) {
    const made = document.createElementNS(scene.namespaceURI, tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  }
  function bytes(n) {
    for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
      if (n >= 0.9995 * unit) {
        const scaled = n / unit;
        return scaled.toFixed(scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0) + " " + name;
      }
    return n + " bytes";
  }
  const hue = (kernel) => Math.round((kernel * 137.508 + 25) % 360);

  // ------------------------------------------------------------------------------------------------------ the tree
  function prepare(name) {
    const given = data[name], ops = [], groups = [];
    function node(item, parent) {
      if (typeof item === "number") {
        const op = { id: "0." + item, number: item, parent, ...given.ops[item] };
        op.notes = op.notes.map((number) => given.notes[number]);
        ops[item] = op;
        return op;
      }
      const group = { id: "g" + groups.length, parent, title: item.title, kind: item.kind, open: item.open, first: item.open,
        rows: item.rows, links: item.links };
      groups.push(group);
      group.items = item.items.map((one) => node(one, group));
      group.before = group.items.map(() => []);
      group.after = group.items.map(() => []);
      for (const [a, b] of item.links) { group.before[b].push(a); group.after[a].push(b); }
      group.count = group.items.reduce((sum, one) => sum + (one.items ? one.count : 1), 0);
      group.colours = new Set(group.items.flatMap((one) => (one.items ? [...one.colours] : [one.colour])));
      group.colour = group.colours.size === 1 ? [...group.colours][0] : -1;
      return group;
    }
    return { name, given, ops, groups, root: node(given.tree, null), chosen: null, focus: null };
  }

  // HERE: explain_layout.js
  // ------------------------------------------------------------------------------------------------------- drawing
  function redraw() {
    const hadFocus = camera.contains(document.activeElement);
    measure(view.root);
    place(view.root, 0, 0);
    camera.textContent = "";
    const [frames, lines, boxes, labels] = [0, 1, 2, 3].map(() => draw(camera, "g", {}));
    view.shown = [];
    (function visit(node) {
      node.element = null;
      if (node.kind !== "root") {
        node.element = node.items ? (node.open ? frame(frames, boxes, node) : folded(boxes, node)) : box(boxes, node);
        view.shown.push(node);
      }
      if (node.items && node.open) node.items.forEach(visit);
    })(view.root);
    view.lines = [];
    const joined = new Map();
    for (const [a, b, size] of view.given.edges) {
      const [from, to] = [seen(view.ops[a]), seen(view.ops[b])];
      if (from === to) continue;
      const key = from.id + " " + to.id;
      if (!joined.has(key)) joined.set(key, { from, to, size: 0, known: false });
      joined.get(key).size += size;
    }
    for (const one of joined.values()) edge(lines, labels, one);
    if (view.chosen) mark(seen(view.chosen));
    const focus = view.focus && seen(view.focus);
    tabstop(focus && focus.element ? focus : view.shown[0], hadFocus);
    marks();
  }
  function act(element, node, label) {
    element.setAttribute("tabindex", "-1");
    element.setAttribute("role", "button");
    element.setAttribute("aria-label", label);
    element.addEventListener("click", () => { if (!dragged) { tabstop(node, true); use(node); } });
    return element;
  }
  function box(parent, node) {
    const kinds = node.notes.map((note) => note[0]);
    let kind = kinds.includes("applied") ? "is-applied" : kinds.includes("refused") ? "is-refused" : "";
    if (node.colour >= 0) kind += " kernel";
    if (kinds.includes("gone")) kind += " gone";
    const made = draw(parent, "g", { "data-op": node.id, class: kind.trim() });
    if (node.colour >= 0) made.style.setProperty("--h", hue(node.colour));
    draw(made, "title", {}, node.label + (node.where ? "\n" + node.where : ""));
    draw(made, "rect", { class: "box", x: node.x, y: node.y, width: node.w, height: node.h, rx: 5 });
    draw(made, "text", { class: "type", x: node.x + node.w / 2, y: node.y + 15, "text-anchor": "middle" }, node.type);
    draw(made, "text", { class: "sub", x: node.x + node.w / 2, y: node.y + 28, "text-anchor": "middle" }, node.name);
    return act(made, node, node.label);
  }
  function folded(parent, node) {
    const made = draw(parent, "g", { "data-group": node.id, class: node.colour >= 0 ? "kernel" : "", "aria-expanded": "false" });
    if (node.colour >= 0) made.style.setProperty("--h", hue(node.colour));
    for (const d of [6, 3])
      draw(made, "rect", { class: "back", x: node.x + d, y: node.y + d, width: node.w, height: node.h, rx: 5 });
    draw(made, "rect", { class: "box", x: node.x, y: node.y, width: node.w, height: node.h, rx: 5 });
    draw(made, "text", { class: "title", x: node.x + node.w / 2, y: node.y + 15, "text-anchor": "middle" },
      "▸ " + node.title.slice(0, 60));
    draw(made, "text", { class: "sub", x: node.x + node.w / 2, y: node.y + 28, "text-anchor": "middle" }, node.count + " ops");
    if (node.colour < 0)
      [...node.colours].filter((one) => one >= 0).slice(0, Math.floor((node.w - 12) / 8)).forEach((one, i) => {
        draw(made, "rect", { class: "chip", x: node.x + 6 + 8 * i, y: node.y + node.h - 5, width: 6, height: 3 })
          .style.setProperty("--h", hue(one));
      });
    return act(made, node, node.title + ", " + node.count + " operators, folded");
  }
  function frame(parent, heads, node) {
    draw(parent, "rect", { class: "frame", x: node.x, y: node.y, width: node.w, height: node.h, rx: 7 });
    const made = draw(heads, "g", { "data-group": node.id, "aria-expanded": "true" });
    draw(made, "rect", { class: "head", x: node.x, y: node.y, width: node.w, height: HEAD, rx: 7 });
    draw(made, "text", { class: "title", x: node.x + 10, y: node.y + 16 }, "▾ " + node.title.slice(0, 60));
    return act(made, node, node.title + ", " + node.count + " operators, open");
  }
  function edge(lines, labels, one) {
    const { from, to } = one;
    const across = column(from) !== column(to);
    const a = { x: from.x + from.w / 2, y: from.y + from.h }, b = { x: to.x + to.w / 2, y: to.y };
    let d, x = (a.x + b.x) / 2, y = (a.y + b.y) / 2 + 3;
    if (across) {
      const right = to.x >= from.x;
      const [p, q] = [from.x + (right ? from.w : 0), to.x + (right ? 0 : to.w)];
      const [s, t] = [from.y + from.h / 2, to.y + to.h / 2], bend = (q - p) / 2;
      d = `M${p} ${s}C${p + bend} ${s} ${q - bend} ${t} ${q} ${t}`;
      [x, y] = [(p + q) / 2, (s + t) / 2];
    } else if ((b.y - a.y > ROW * 2.2 || b.y < a.y) && (to.x > from.x + from.w || to.x + to.w < from.x)) {
      const right = to.x > from.x;
      const [p, q] = [from.x + (right ? from.w : 0), to.x + (right ? 0 : to.w)];
      const [s, t] = [from.y + from.h / 2, to.y + to.h / 2], bend = (q - p) / 2;
      d = `M${p} ${s}C${p + bend} ${s} ${q - bend} ${t} ${q} ${t}`;
      [x, y] = [(p + q) / 2, (s + t) / 2];
    } else if (b.y - a.y > ROW * 2.2 || b.y < a.y) {
      // Past other rows: around them, at the side.
      const side = Math.max(from.x + from.w, to.x + to.w) + 14 + Math.min(60, Math.abs(b.y - a.y) / 12);
      const [s, t] = [from.y + from.h / 2, to.y + to.h / 2];
      d = `M${from.x + from.w} ${s}C${side} ${s} ${side} ${t} ${to.x + to.w} ${t}`;
      x = side - 8;
    } else {
      const bend = (b.y - a.y) / 2;
      d = `M${a.x} ${a.y}C${a.x} ${a.y + bend} ${b.x} ${b.y - bend} ${b.x} ${b.y - 1}`;
    }
    const kind = across ? " across" : "";
    one.element = draw(lines, "path", { class: "edge" + kind, d, "data-edge": from.id + " " + to.id });
    draw(one.element, "title", {}, `${from.title || from.label}\n→ ${to.title || to.label}: ${one.size ? bytes(one.size) : "?"}`);
    if (one.size)
      one.label = draw(labels, "text", { class: "bytes" + kind, x, y, "text-anchor": "middle" }, bytes(one.size));
    view.lines.push(one);
  }
  function mark(node) {
    for (const one of camera.querySelectorAll(".chosen")) one.classList.remove("chosen");
    if (node.element) node.element.classList.add("chosen");
    for (const line of view.lines)
      if (line.from === node || line.to === node)
        for (const one of [line.element, line.label]) if (one) one.classList.add("chosen");
  }
  function marks() {
    for (const one of camera.querySelectorAll(".hit")) one.classList.remove("hit");
    for (const node of matches) if (node.element) node.element.classList.add("hit");
  }
  function tabstop(node, focus) {
    if (view.focus && view.focus.element) view.focus.element.setAttribute("tabindex", "-1");
    view.focus = node;
    if (!node || !node.element) return;
    node.element.setAttribute("tabindex", "0");
    if (focus) node.element.focus({ preventScroll: true });
  }

  // -------------------------------------------------------------------------------------------------------- camera
  const area = () => ({ w: scene.clientWidth || 800, h: scene.clientHeight || 500 });
  function aim() {
    camera.setAttribute("transform", `translate(${at.x} ${at.y}) scale(${at.k})`);
    scene.classList.toggle("far", at.k < 0.5);
    map();
  }
  // Shows the whole program, as wide as its box; the box becomes as tall as that takes.
  function fit() {
    const { w } = area(), root = view.root;
    const k = scale(w - 10);
    panel.style.height = Math.ceil(root.h * k + 16) + "px";
    width = w;
    at = { k, x: (w - root.w * k) / 2, y: 8 };
    moved = false;
    aim();
  }
  function zoom(factor, x, y) {
    const { w, h } = area();
    if (x === undefined) [x, y] = [w / 2, h / 2];
    const k = Math.min(4, Math.max(0.002, at.k * factor));
    at = { k, x: x - ((x - at.x) * k) / at.k, y: y - ((y - at.y) * k) / at.k };
    moved = true;
    aim();
  }
  function pan(x, y) {
    at.x += x;
    at.y += y;
    moved = true;
    aim();
  }
  function reach(node, least) {
    const { w, h } = area();
    const tall = node.items && node.open ? HEAD : node.h;
    if (least && at.k < least) at.k = least;
    const x = (node.x + node.w / 2) * at.k + at.x, y = (node.y + tall / 2) * at.k + at.y;
    if (least || x < 30 || y < 20 || x > w - 30 || y > h - 20) {
      at.x += w / 2 - x;
      at.y += h / 2 - y;
      moved = true;
    }
    aim();
    // The box may be taller than the window.
    if (node.element) node.element.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  function map() {
    const tool = minimap.getContext("2d"), root = view.root;
    const k = Math.min(minimap.width / root.w, minimap.height / root.h) * 0.94;
    const [x, y] = [(minimap.width - root.w * k) / 2, (minimap.height - root.h * k) / 2];
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    tool.clearRect(0, 0, minimap.width, minimap.height);
    for (const node of view.shown) {
      const open = node.items && node.open;
      tool.fillStyle = open ? colour("--shade") : node.colour >= 0
        ? `hsl(${hue(node.colour)} 60% ${colour("--rim")})` : colour("--edge");
      tool.fillRect(x + node.x * k, y + node.y * k, Math.max(1, node.w * k), Math.max(1, node.h * k));
    }
    const { w, h } = area();
    // Where all is seen, the map says nothing and covers something.
    minimap.hidden = at.x >= -1 && at.y >= -1 && at.x + root.w * at.k <= w + 1 && at.y + root.h * at.k <= h + 1;
    tool.strokeStyle = colour("--chosen");
    tool.lineWidth = 2;
    tool.strokeRect(x - (at.x / at.k) * k, y - (at.y / at.k) * k, (w / at.k) * k, (h / at.k) * k);
    minimap.scale = { k, x, y };
  }

  // ------------------------------------------------------------------------------------------------------- choosing
  function use(node) {
    if (node.items) toggle(node);
    else show(node);
  }
  function toggle(node) {
    const [x, y] = [node.x * at.k + at.x, node.y * at.k + at.y];
    node.open = !node.open;
    redraw();
    // What was clicked on stays where it is.
    at.x = x - node.x * at.k;
    at.y = y - node.y * at.k;
    moved = true;
    aim();
    describe(node);
  }
  function all(open) {
    for (const group of view.groups) if (group.kind !== "root" && group.kind !== "phase") group.open = open;
    arrange();
    redraw();
    fit();
  }
  function describe(group) {
    verdict.textContent = "";
    html(verdict, "h3", group.title);
    html(verdict, "p", `${group.count} operators; ${group.open ? "open" : "folded"}`, "note");
    const counts = new Map();
    (function visit(node) {
      if (node.items) node.items.forEach(visit);
      else counts.set(node.type, (counts.get(node.type) || 0) + 1);
    })(group);
    const list = html(verdict, "ul", "");
    for (const [type, count] of [...counts].sort((a, b) => b[1] - a[1])) html(list, "li", `${count} × ${type}`);
  }
  function show(node) {
    view.chosen = node;
    mark(node);
    verdict.textContent = "";
    html(verdict, "h3", node.label);
    if (node.where) html(verdict, "p", node.where, "note");
    const list = html(verdict, "ul", "");
    for (const [kind, text, change, target] of node.notes) {
      const item = html(list, "li", "");
      html(item, "div", kind, "kind kind-" + kind);
      html(item, "div", text);
      if (change) html(item, "div", "To allow it: " + change + ".");
      if (target) html(item, "a", "more below").setAttribute("href", "#" + target);
    }
    for (const [title, rows] of [["It reads", incoming(node)], ["Its results are read", outgoing(node)], ["Its body", node.body]]) {
      if (!rows.length) continue;
      html(verdict, "div", title, "kind");
      const values = html(verdict, "ul", "");
      for (const row of rows.slice(0, 12)) html(values, "li", row);
      if (rows.length > 12) html(values, "li", `and ${rows.length - 12} more`);
    }
    verdict.scrollTop = 0;
  }
  const incoming = (node) => [...node.reads,
    ...view.given.edges.filter((e) => e[1] === node.number).flatMap((e) => e[3].map((v) => `${v} from ${view.ops[e[0]].type}`))];
  const outgoing = (node) =>
    view.given.edges.filter((e) => e[0] === node.number).flatMap((e) => e[3].map((v) => `${v} by ${view.ops[e[1]].type}`));

  function reveal(node) {
    let changed = false;
    for (let up = node.parent; up; up = up.parent) if (!up.open) { up.open = true; changed = true; }
    if (changed) redraw();
    tabstop(node, false);
    reach(node, LEGIBLE);
    show(node);
  }
  function look(step) {
    const text = search.value.trim().toLowerCase();
    if (text !== look.text) {
      look.text = text;
      match = -1;
      matches = text ? view.ops.filter((op) => (op.label + " " + op.where).toLowerCase().includes(text)) : [];
      marks();
    }
    if (matches.length && step) {
      match = (match + step + matches.length) % matches.length;
      reveal(matches[match]);
      marks();
    }
    found.textContent = !text ? "" : !matches.length ? "nothing found"
      : match < 0 ? `${matches.length} found; Enter goes there` : `${match + 1} of ${matches.length}`;
  }

  // -------------------------------------------------------------------------------------------------------- events
  function choose(name, focus) {
    for (const tab of tabs) {
      const mine = tab.id === "tab-" + name;
      tab.setAttribute("aria-selected", String(mine));
      tab.setAttribute("tabindex", mine ? "0" : "-1");
      if (mine) panel.setAttribute("aria-labelledby", tab.id);
      if (mine && focus) tab.focus();
    }
    if (!views[name]) views[name] = prepare(name);
    view = views[name];
    scene.setAttribute("data-view", name);
    scene.setAttribute("aria-label", "the program " + name + " the fusions, " + view.ops.length + " operators");
    look.text = null;
    arrange();
    redraw();
    look(0);
    fit();
  }
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(tab.id.slice(4), false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) choose(tabs[(i + step + tabs.length) % tabs.length].id.slice(4), true);
    });
  });
  const press = { fit, larger: () => zoom(1.4), smaller: () => zoom(1 / 1.4), fold: () => all(false), unfold: () => all(true) };
  for (const id in press) document.getElementById(id).addEventListener("click", () => press[id]());
  search.addEventListener("input", () => look(0));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") look(event.shiftKey ? -1 : 1);
  });

  // The nearest box in a direction; what lies aside counts twice.
  function neighbour(node, dx, dy) {
    let best = null, least = Infinity;
    const middle = (one) => [one.x + one.w / 2, one.y + (one.items && one.open ? HEAD : one.h) / 2];
    const [x, y] = middle(node);
    for (const one of view.shown) {
      const [p, q] = middle(one);
      const along = (p - x) * dx + (q - y) * dy, aside = Math.abs((p - x) * dy) + Math.abs((q - y) * dx);
      if (one === node || along < 1) continue;
      if (along + 2 * aside < least) [best, least] = [one, along + 2 * aside];
    }
    return best;
  }
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  scene.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const on = event.target === scene ? null : view.focus, arrow = ARROWS[event.key];
    if (arrow && event.shiftKey) pan(-60 * arrow[0], -60 * arrow[1]);
    else if (arrow) {
      const next = on ? neighbour(on, ...arrow) : view.focus || view.shown[0];
      if (next) { tabstop(next, true); reach(next); }
    } else if ((event.key === "Enter" || event.key === " ") && on) use(on);
    else if (event.key === "Escape" && on) {
      const up = on.items && on.open ? on : on.parent;
      if (up && up.kind !== "root" && up.open) { tabstop(up, false); toggle(up); tabstop(up, true); reach(up); }
    } else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "/") search.focus();
    else return;
    event.preventDefault();
  });
  scene.addEventListener("wheel", (event) => {
    // A plain wheel scrolls the page, also above the drawing.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = scene.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });

  let grip = null, dragged = false;
  scene.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    grip = { x: event.clientX, y: event.clientY };
    dragged = false;
  });
  addEventListener("pointermove", (event) => {
    if (!grip) return;
    const [x, y] = [event.clientX - grip.x, event.clientY - grip.y];
    if (!dragged && Math.hypot(x, y) < 4) return;
    dragged = true;
    scene.classList.add("moving");
    grip = { x: event.clientX, y: event.clientY };
    pan(x, y);
  });
  for (const end of ["pointerup", "pointercancel"])
    addEventListener(end, () => {
      grip = null;
      scene.classList.remove("moving");
    });
  function jump(event) {
    if (!event.buttons) return;
    const box = minimap.getBoundingClientRect(), { k, x, y } = minimap.scale, { w, h } = area();
    const p = ((event.clientX - box.left) * minimap.width / box.width - x) / k;
    const q = ((event.clientY - box.top) * minimap.height / box.height - y) / k;
    at.x = w / 2 - p * at.k;
    at.y = h / 2 - q * at.k;
    moved = true;
    aim();
  }
  minimap.addEventListener("pointerdown", jump);
  minimap.addEventListener("pointermove", jump);
  new ResizeObserver(() => {
    if (moved || area().w === width) { aim(); return; }
    arrange();
    redraw();
    fit();
  }).observe(panel);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", map);
  choose("before", false);
})();
