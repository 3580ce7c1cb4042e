  // -------------------------------------------------------------------------------------------------------- layout
  // Keeps an order and a least distance, and comes as near as possible to the wanted middles.
  function spread(row, wanted) {
    const blocks = [];
    let offset = 0;
    const offsets = row.map((one, i) => {
      if (i) offset += (row[i - 1].w + one.w) / 2 + GAP;
      let [mean, count] = [wanted[i] - offset, 1];
      while (blocks.length && blocks[blocks.length - 1][0] > mean) {
        const [old, number] = blocks.pop();
        mean = (old * number + mean * count) / (number + count);
        count += number;
      }
      blocks.push([mean, count]);
      return offset;
    });
    let i = 0;
    for (const [mean, count] of blocks) for (let n = 0; n < count; n++, i++) row[i].mid = mean + offsets[i];
  }
  function measure(node) {
    if (!node.items) {
      node.w = Math.max(76, 18 + 7.4 * node.type.length, 18 + 6.8 * node.name.length);
      node.h = HEIGHT;
      return;
    }
    const title = 22 + 7.4 * Math.min(node.title.length, 60);
    if (!node.open) {
      node.w = Math.max(110, title);
      node.h = HEIGHT;
      return;
    }
    node.items.forEach(measure);
    const index = node.kind === "root" && layout.stacked ? node.items.map((_, i) => [i]) : cutRows(node);
    const rows = index.map((row) => row.map((i) => node.items[i]));
    const mean = (list) => list.reduce((sum, i) => sum + node.items[i].mid, 0) / list.length;
    node.items.forEach((one) => { one.mid = 0; });
    index.forEach((row, r) => spread(rows[r], row.map((i) => (node.before[i].length ? mean(node.before[i]) : 0))));
    for (let r = rows.length - 2; r >= 0; r--)
      spread(rows[r], index[r].map((i) => (node.after[i].length ? mean(node.after[i]) : node.items[i].mid)));
    if (node.kind === "root") {
      let x = 0;
      for (const one of node.items) {
        one.mid = x + one.w / 2;
        if (!layout.stacked) x += one.w + COLUMN;
      }
    }
    const head = node.kind === "root" ? 0 : HEAD, top = head ? head + PAD : 0;
    const tall = rows.map((row) => Math.max(...row.map((one) => one.h)));
    let x = PAD, bottom = 0;
    for (const [start, stop] of columns(node, rows, tall)) {
      const [left, right] = extent(rows.slice(start, stop).flat());
      let y = top;
      for (let r = start; r < stop; r++) {
        for (const one of rows[r]) {
          one.dx = x + one.mid - left;
          one.dy = y + (node.kind === "root" ? 0 : (tall[r] - one.h) / 2);
        }
        y += tall[r] + ROW;
      }
      bottom = Math.max(bottom, y - ROW);
      x += right - left + APART;
    }
    const wide = x - APART + PAD;
    node.w = Math.max(wide, head ? title : 0);
    node.h = bottom + PAD;
    for (const one of node.items) one.dx += (node.w - wide) / 2;
  }
  // Rows that are wider than the box go on below.
  function cutRows(node) {
    if (node.kind === "root") return node.rows;
    return node.rows.flatMap((row) => {
      const cut = [[]];
      let sum = 0;
      for (const i of row) {
        const w = node.items[i].w + GAP;
        if (sum && sum + w > layout.wide - 6 * PAD) { cut.push([]); sum = 0; }
        cut[cut.length - 1].push(i);
        sum += w;
      }
      return cut;
    });
  }
  // Rows of something tall go into columns, as in a newspaper; one of several parts below each other, into as many as it is wide.
  function columns(node, rows, tall) {
    if (node.kind === "root") return [[0, rows.length]];
    const whole = tall.reduce((sum, h) => sum + h + ROW, 0);
    const count = Math.max(1, Math.min(Math.ceil(whole / layout.tall), rows.length));
    if (!layout.stacked || node.parent.kind !== "root") return cutInto(count, rows, tall, whole);
    let best = [[0, rows.length]];
    for (let more = 2; more <= Math.min(rows.length, 12); more++) {
      const cut = cutInto(more, rows, tall, whole);
      const wide = cut.map(([start, stop]) => extent(rows.slice(start, stop).flat())).reduce((sum, [l, r]) => sum + r - l, 0);
      if (wide + (cut.length - 1) * APART + 4 * PAD <= layout.wide) best = cut;
    }
    return best;
  }
  const extent = (nodes) => [Math.min(...nodes.map((one) => one.mid - one.w / 2)),
    Math.max(...nodes.map((one) => one.mid + one.w / 2))];
  function cutInto(count, rows, tall, whole) {
    const cut = [];
    let start = 0, sum = 0;
    rows.forEach((_, r) => {
      sum += tall[r] + ROW;
      if (sum >= whole / count - 1 && cut.length < count - 1) {
        cut.push([start, r + 1]);
        [start, sum] = [r + 1, 0];
      }
    });
    if (start < rows.length) cut.push([start, rows.length]);
    return cut;
  }
  // The scale at which all of it is seen in a box so wide.
  const scale = (w) => Math.min(w / view.root.w, LARGEST, (TALLEST - 16) / view.root.h);
  // Chooses the layout with which the drawing, as wide as its box and with legible texts, is least tall.
  function arrange() {
    const w = area().w - 10;
    layout.wide = w;
    let best = null;
    for (const stacked of [false, true])
      for (const tall of TALLS) {
        Object.assign(layout, { tall, stacked });
        measure(view.root);
        const { w: wide, h } = view.root, k = scale(w);
        // First what is legible, then what fills the width, then what is least tall.
        const score = [Math.max(0, LEGIBLE - k), -Math.min(0.7, (wide * k) / w), h * k];
        const i = best ? score.findIndex((one, n) => Math.abs(one - best.score[n]) > 1e-6) : 0;
        if (!best || (i >= 0 && score[i] < best.score[i])) best = { score, tall, stacked };
      }
    Object.assign(layout, { tall: best.tall, stacked: best.stacked });
  }
  function place(node, x, y) {
    node.x = x;
    node.y = y;
    if (node.items && node.open) for (const one of node.items) place(one, x + one.dx - one.w / 2, y + one.dy);
  }
  function seen(node) {
    let shown = node;
    for (let up = node.parent; up; up = up.parent) if (!up.open) shown = up;
    return shown;
  }
  function column(node) {
    while (node.parent && node.parent.parent) node = node.parent;
    return node;
  }

