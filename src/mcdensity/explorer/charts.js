// Pictures as SVG. Text from the data is only ever set as text, never as markup.
const Charts = (() => {
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const POINTS = 400; // of a curve
  const CELLS = 64; // of an axis of contours
  const LEAST = 1e-6; // cells of the first target with less probability are empty

  function svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function html(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // 12,230 and 0.0012, not 1.223e+04.
  function readable(value, digits = 4) {
    if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "?";
    if (value === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(value)));
    if (size < -5 || size >= 12) return value.toPrecision(digits).replace("-", "−");
    const text = Number(value.toPrecision(digits)).toLocaleString("en-US", {
      maximumFractionDigits: Math.max(digits - 1 - size, 0),
    });
    return text.replace("-", "−");
  }

  function percent(share) {
    if (share <= 0) return "0 %";
    if (share < 0.001) return "< 0.1 %";
    if (share > 0.999 && share < 1) return "> 99.9 %";
    const digits = share < 0.095 || share > 0.905 ? 1 : 0;
    return `${(100 * share).toFixed(digits)} %`;
  }

  function ticks(low, high, count) {
    const rough = (high - low) / Math.max(count, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
    const out = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
      out.push(Number((k * step).toPrecision(12)));
    }
    return out;
  }

  const fixed = (v) => v.toFixed(1);
  const line = (points) => points.map((p, i) => `${i ? "L" : "M"}${fixed(p[0])} ${fixed(p[1])}`).join("");

  // A chart whose size is that of its place; `draw` is called again when the place changes.
  class Chart {
    constructor(place, label, shape, redraw) {
      this.place = place;
      this.shape = shape;
      this.root = svg("svg", { role: "img", "aria-label": label });
      this.back = svg("g");
      this.front = svg("g");
      this.root.append(this.back, this.front);
      place.append(this.root);
      this.margin = { left: 14, right: 14, top: 22, bottom: 40 };
      this.format = [(v) => readable(v, 6), (v) => readable(v, 6)]; // of both axes
      this.resize();
      // In the next frame: a change of size within an observation would be reported as an error.
      new ResizeObserver(() => requestAnimationFrame(() => {
        if (this.resize()) redraw();
      })).observe(place);
    }

    resize() {
      const width = Math.max(Math.round(this.place.clientWidth), 200);
      const height = this.shape(width);
      if (width === this.width && height === this.height) return false;
      this.width = width;
      this.height = height;
      this.root.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.root.setAttribute("height", height);
      this.drawn = null; // axes have to be drawn again
      return true;
    }

    label(text) { this.root.setAttribute("aria-label", text); }

    scales(xs, ys) {
      const { left, right, top, bottom } = this.margin;
      const map = (low, high, from, to) => {
        const factor = (to - from) / (high - low);
        return Object.assign((v) => from + (v - low) * factor, {
          inverse: (p) => low + (p - from) / factor,
        });
      };
      this.x = map(...xs, left, this.width - right);
      this.y = map(...ys, this.height - bottom, top);
      this.xs = xs;
      this.ys = ys;
    }

    // Axes are drawn again only if their ranges or names change.
    axes(xName, yName) {
      const key = JSON.stringify([this.width, this.height, this.xs, yName ? this.ys : 0, xName]);
      if (key === this.drawn) return;
      this.drawn = key;
      const { left, right, top, bottom } = this.margin;
      const parts = [];
      const base = this.height - bottom;
      parts.push(svg("line", { class: "axis", x1: left, x2: this.width - right, y1: base, y2: base }));
      if (Array.isArray(this.names)) {
        const room = (this.width - left - right) / this.names.length;
        this.names.forEach((name, i) => {
          const text = svg("text", { x: this.x(i), y: base + 16, "text-anchor": "middle" });
          const most = Math.max(Math.floor(room / 7), 2);
          text.textContent = name.length > most ? `${name.slice(0, most - 1)}…` : name;
          parts.push(text);
        });
      } else {
        for (const t of ticks(...this.xs, this.width / 90)) {
          const text = svg("text", { x: this.x(t), y: base + 16, "text-anchor": "middle" });
          text.textContent = this.format[0](t);
          parts.push(svg("line", { class: "axis", x1: this.x(t), x2: this.x(t), y1: base, y2: base + 4 }), text);
        }
      }
      const name = svg("text", { x: (left + this.width - right) / 2, y: this.height - 4,
                                 "text-anchor": "middle", class: "strong" });
      name.textContent = xName;
      parts.push(name);
      if (yName) {
        for (const t of ticks(...this.ys, this.height / 60)) {
          const text = svg("text", { x: left - 6, y: this.y(t) + 4, "text-anchor": "end" });
          text.textContent = this.format[1](t);
          parts.push(svg("line", { class: "axis", x1: left, x2: this.width - right,
                                   y1: this.y(t), y2: this.y(t) }), text);
        }
        const own = svg("text", { x: left, y: top - 8, class: "strong",
                                  "text-anchor": left > 50 ? "middle" : "start" });
        own.textContent = yName;
        parts.push(own);
      }
      this.back.replaceChildren(...parts);
    }

    inside(p) { return Laws.clip(p, this.margin.left, this.width - this.margin.right); }
  }

  // Curves.

  function gridOf(model, range) {
    const y = new Float64Array(POINTS + 1);
    for (let i = 0; i <= POINTS; i++) y[i] = range[0] + ((range[1] - range[0]) * i) / POINTS;
    return model.grid(y);
  }

  function curvePoints(chart, grid, density) {
    const out = [];
    for (let i = 0; i < density.length; i++) out.push([chart.x(grid.y[i]), chart.y(density[i])]);
    return out;
  }

  function area(chart, grid, density, low, high) {
    const base = chart.height - chart.margin.bottom;
    const at = (v) => {
      const place = ((v - grid.y[0]) / (grid.y[grid.y.length - 1] - grid.y[0])) * (grid.y.length - 1);
      const k = Laws.clip(Math.floor(place), 0, density.length - 2);
      const part = Laws.clip(place - k, 0, 1);
      return [chart.x(Laws.clip(v, grid.y[0], grid.y[grid.y.length - 1])),
              chart.y(density[k] + (density[k + 1] - density[k]) * part)];
    };
    const points = [at(low)];
    for (let i = 0; i < density.length; i++) {
      if (grid.y[i] > low && grid.y[i] < high) points.push([chart.x(grid.y[i]), chart.y(density[i])]);
    }
    points.push(at(high));
    const [first, last] = [points[0][0], points[points.length - 1][0]];
    return `${line(points)}L${fixed(last)} ${fixed(base)}L${fixed(first)} ${fixed(base)}Z`;
  }

  function bars(chart, law, width, chosen, shift = 0) {
    const base = chart.height - chart.margin.bottom;
    let path = "";
    for (let i = 0; i < law.atoms.length; i++) {
      const v = law.atoms[i];
      if (v < chart.xs[0] || v > chart.xs[1] || !chosen(v) || law.masses[i] < 1e-6) continue;
      const x = chart.x(v) - width / 2 + shift, top = chart.y(law.masses[i]);
      path += `M${fixed(x)} ${fixed(base)}V${fixed(top)}h${fixed(width)}V${fixed(base)}Z`;
    }
    return path;
  }

  // The widest bars that do not touch.
  function barWidth(chart, law) {
    let least = Infinity;
    for (let i = 1; i < law.atoms.length; i++) {
      if (law.atoms[i] >= chart.xs[0] && law.atoms[i - 1] <= chart.xs[1]) {
        least = Math.min(least, chart.x(law.atoms[i]) - chart.x(law.atoms[i - 1]));
      }
    }
    return Laws.clip(least * 0.72, 1, 40);
  }

  function lawChart(chart, model, scene) {
    const { law, pins, range, coverage, limit, outcome, name } = scene;
    const low = law.ppf((1 - coverage) / 2), high = law.ppf((1 + coverage) / 2), median = law.ppf(0.5);
    const discrete = model.kind === "discrete", parts = [];
    const base = chart.height - chart.margin.bottom, laws = [law, ...pins.map((p) => p.law)];
    let densities = null, alone = null, top = 0;
    if (discrete) {
      for (const l of [...laws, model.alone]) {
        l.masses.forEach((m, i) => {
          if (l.atoms[i] >= range[0] && l.atoms[i] <= range[1]) top = Math.max(top, m);
        });
      }
    } else {
      if (chart.gridKey !== range.join()) {
        chart.gridKey = range.join();
        chart.grid = gridOf(model, range);
      }
      densities = laws.map((l) => l.density(chart.grid));
      alone = model.alone.density(chart.grid);
      for (const d of [...densities, alone]) for (const v of d) if (v > top) top = v;
    }
    chart.scales(range, [0, (top || 1) * 1.04]);
    chart.axes(name);
    if (discrete) {
      const wide = barWidth(chart, law), within = (v) => v >= low && v <= high;
      parts.push(svg("path", { class: "alone", d: bars(chart, model.alone, Math.min(wide * 1.3, 48), () => true) }));
      parts.push(svg("path", { class: "bars", d: bars(chart, law, wide, within) }));
      parts.push(svg("path", { class: "outer", d: bars(chart, law, wide, (v) => !within(v)) }));
      pins.forEach((pin) => {
        parts.push(svg("path", { class: "pinned", stroke: `var(--pin-${pin.colour})`,
                                 d: bars(chart, pin.law, wide, () => true) }));
      });
    } else {
      const grid = chart.grid;
      parts.push(svg("path", { class: "alone", d: area(chart, grid, alone, ...range) }));
      parts.push(svg("path", { class: "inside", d: area(chart, grid, densities[0], low, high) }));
      pins.forEach((pin, i) => {
        parts.push(svg("path", { class: "pinned", stroke: `var(--pin-${pin.colour})`,
                                 "stroke-dasharray": ["7 3", "2 3", "9 3 2 3"][pin.colour - 1],
                                 d: line(curvePoints(chart, grid, densities[i + 1])) }));
      });
      parts.push(svg("path", { class: "curve", d: line(curvePoints(chart, grid, densities[0])) }));
      stems(chart, laws, pins, parts);
    }
    const at = (v) => fixed(chart.inside(chart.x(v)));
    parts.push(svg("line", { class: "middle", x1: at(median), x2: at(median), y1: chart.margin.top, y2: base }));
    if (outcome !== null) {
      const x = Number(at(outcome));
      parts.push(svg("path", { class: "outcome", d: `M${x} ${base - 9}l7 9l-7 9l-7 -9Z` }));
    }
    chart.front.replaceChildren(...parts);
    return { low, high, median, limitAt: chart.inside(chart.x(limit)) };
  }

  // Atoms beside a density: as high as their probability, the whole height being 1.
  function stems(chart, laws, pins, parts) {
    const base = chart.height - chart.margin.bottom, whole = base - chart.margin.top;
    laws.forEach((law, k) => {
      law.atoms.forEach((v, j) => {
        const x = chart.inside(chart.x(v)) + 6 * k, y = base - whole * law.masses[j];
        const stem = svg("line", { class: "stem", x1: x, x2: x, y1: base, y2: y });
        if (k) stem.style.stroke = `var(--pin-${pins[k - 1].colour})`;
        parts.push(stem);
        if (k) return;
        const right = x < chart.width / 2;
        const text = svg("text", { x: x + (right ? 8 : -8), y: Math.max(y + 10, chart.margin.top),
                                   "text-anchor": right ? "start" : "end", class: "strong" });
        text.textContent = percent(law.masses[j]);
        parts.push(text);
      });
    });
  }

  // Quantiles along one feature.

  function fanChart(chart, scene) {
    const { names, xs, ys, here, xName, yName } = scene;
    let { points } = scene;
    if (scene.steps && !names) {
      // Quantiles of counts jump: each holds up to the middle of the way to the next.
      const half = (points[1].x - points[0].x) / 2;
      points = points.flatMap((p) => [p.x - half, p.x + half].map((x) => ({ x: Laws.clip(x, ...xs), q: p.q })));
    }
    chart.names = names;
    chart.margin.left = 54;
    chart.scales(names ? [-0.5, names.length - 0.5] : xs, ys);
    chart.axes(xName, yName);
    const parts = [];
    const band = (a, b, opacity) => {
      const up = points.map((p) => [chart.x(p.x), chart.y(p.q[b])]);
      const down = points.map((p) => [chart.x(p.x), chart.y(p.q[a])]).reverse();
      parts.push(svg("path", { class: "inside", "fill-opacity": opacity, d: `${line([...up, ...down])}Z` }));
    };
    if (names) {
      const width = Math.min(44, (chart.x(1) - chart.x(0)) * 0.5);
      for (const p of points) {
        const box = (a, b, opacity) => parts.push(svg("rect", {
          class: "inside", "fill-opacity": opacity, x: chart.x(p.x) - width / 2, width,
          y: chart.y(p.q[b]), height: Math.max(chart.y(p.q[a]) - chart.y(p.q[b]), 1) }));
        box(0, 4, 0.2);
        box(1, 3, 0.35);
        parts.push(svg("line", { class: "curve", x1: chart.x(p.x) - width / 2, x2: chart.x(p.x) + width / 2,
                                 y1: chart.y(p.q[2]), y2: chart.y(p.q[2]) }));
      }
    } else {
      band(0, 4, 0.18);
      band(1, 3, 0.3);
      parts.push(svg("path", { class: "curve", d: line(points.map((p) => [chart.x(p.x), chart.y(p.q[2])])) }));
    }
    if (Number.isFinite(here)) {
      const x = chart.inside(chart.x(here));
      parts.push(svg("line", { class: "here", x1: x, x2: x, y1: chart.margin.top, y2: chart.height - chart.margin.bottom }));
    }
    chart.front.replaceChildren(...parts);
  }

  // Two targets.

  // Ends of cells: between the values of a discrete target, else evenly spaced.
  function cellEnds(model, range) {
    if (model.kind === "discrete") {
      const values = Array.from(model.values).filter((v) => v >= range[0] && v <= range[1]);
      const ends = values.slice(1).map((v, i) => (v + values[i]) / 2);
      const first = values.length > 1 ? values[1] - values[0] : 1;
      return { ends: [values[0] - first / 2, ...ends, values[values.length - 1] + first / 2], middles: values };
    }
    const ends = Array.from({ length: CELLS + 1 }, (_, i) => range[0] + ((range[1] - range[0]) * i) / CELLS);
    return { ends, middles: ends.slice(1).map((v, i) => (v + ends[i]) / 2) };
  }

  const differences = (law, ends) => {
    const below = ends.map((v) => law.cdf(v));
    return below.slice(1).map((v, i) => Math.max(v - below[i], 0));
  };

  // Probabilities of cells: table[i][j] of the first target's cell i and the second's cell j.
  function cellTable(models, lawOf, first, axes) {
    const along = differences(first, axes[0].ends);
    const laws = axes[0].middles.map((v, i) => (along[i] > LEAST ? lawOf(v) : null));
    const empty = axes[1].middles.map(() => 0);
    const table = along.map((p, i) => (laws[i] ? differences(laws[i], axes[1].ends).map((q) => p * q) : empty));
    return { along, laws, table };
  }

  function levelsOf(table, shares) {
    const sorted = table.flat().sort((a, b) => b - a);
    const total = sorted.reduce((a, b) => a + b, 0) || 1;
    return shares.map((share) => {
      let sum = 0;
      for (const p of sorted) if ((sum += p) >= share * total) return p;
      return 0;
    });
  }

  // The part of each cell between four middles where the table is above a level.
  function region(chart, axes, table, level) {
    const [xs, ys] = axes.map((axis, k) => axis.middles.map(k ? chart.y : chart.x));
    let path = "";
    for (let i = 0; i + 1 < xs.length; i++) {
      for (let j = 0; j + 1 < ys.length; j++) {
        const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
        const value = corners.map(([a, b]) => table[a][b] - level);
        if (value.every((v) => v < 0)) continue;
        const points = [];
        corners.forEach(([a, b], k) => {
          const n = (k + 1) % 4, [c, d] = corners[n];
          if (value[k] >= 0) points.push([xs[a], ys[b]]);
          if (value[k] >= 0 !== value[n] >= 0) {
            const part = value[k] / (value[k] - value[n]);
            points.push([xs[a] + (xs[c] - xs[a]) * part, ys[b] + (ys[d] - ys[b]) * part]);
          }
        });
        path += `${line(points)}Z`;
      }
    }
    return path;
  }

  function jointChart(chart, models, scene) {
    const { cells, pins, axes, ranges, outcome, names } = scene;
    chart.margin.left = 54;
    chart.scales(...ranges);
    chart.axes(names[0], names[1]);
    const parts = [], shares = [0.95, 0.8, 0.5, 0.2];
    if (models.every((m) => m.kind === "continuous")) {
      levelsOf(cells.table, shares).forEach((level, k) => {
        parts.push(svg("path", { class: "inside", "fill-opacity": [0.14, 0.2, 0.28, 0.4][k],
                                 d: region(chart, axes, cells.table, level) }));
      });
      for (const pin of pins) {
        parts.push(svg("path", { class: "pinned", stroke: `var(--pin-${pin.colour})`, "fill-opacity": 0,
                                 "stroke-dasharray": "none",
                                 d: outline(chart, axes, pin.cells.table, levelsOf(pin.cells.table, [0.8])[0]) }));
      }
    } else {
      const most = Math.max(...cells.table.flat()) || 1;
      cells.table.forEach((column, i) => column.forEach((p, j) => {
        if (p < most / 400) return;
        const x = chart.x(axes[0].ends[i]), y = chart.y(axes[1].ends[j + 1]);
        parts.push(svg("rect", { class: "bars", "fill-opacity": Math.sqrt(p / most).toFixed(3), x, y,
                                 width: Math.max(chart.x(axes[0].ends[i + 1]) - x - 0.5, 0.5),
                                 height: Math.max(chart.y(axes[1].ends[j]) - y - 0.5, 0.5) }));
      }));
    }
    if (outcome) {
      const [x, y] = [chart.x(outcome[0]), chart.y(outcome[1])];
      parts.push(svg("path", { class: "outcome", d: `M${x} ${y - 8}l7 8l-7 8l-7 -8Z` }));
    }
    chart.front.replaceChildren(...parts);
  }

  // The line around a region: the sides of its pieces that lie on the level.
  function outline(chart, axes, table, level) {
    const [xs, ys] = axes.map((axis, k) => axis.middles.map(k ? chart.y : chart.x));
    let path = "";
    for (let i = 0; i + 1 < xs.length; i++) {
      for (let j = 0; j + 1 < ys.length; j++) {
        const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
        const value = corners.map(([a, b]) => table[a][b] - level), points = [];
        corners.forEach(([a, b], k) => {
          const n = (k + 1) % 4, [c, d] = corners[n];
          if (value[k] >= 0 === value[n] >= 0) return;
          const part = value[k] / (value[k] - value[n]);
          points.push([xs[a] + (xs[c] - xs[a]) * part, ys[b] + (ys[d] - ys[b]) * part]);
        });
        for (let k = 0; k + 1 < points.length; k += 2) path += line([points[k], points[k + 1]]);
      }
    }
    return path;
  }

  return { Chart, svg, html, readable, percent, lawChart, fanChart, jointChart, cellEnds, cellTable };
})();
