// The page: controls, what they set, and what follows from it.
const explorer = (() => {
  const { svg, html, readable, percent } = Charts;
  const FEW = 12; // features that are shown at first
  const STEPS = 40; // of a curve of quantiles
  const MOST_PINS = 3;
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const models = data.models.map(Laws.build);
  const joint = models.length > 1;
  const count = data.controls.length;
  const rowValues = Laws.doubles(data.rows.values);
  const outcomes = data.rows.outcomes && Laws.doubles(data.rows.outcomes);
  const nearRows = Laws.floats(data.near.rows);
  const state = { x: null, coverage: 0.9, limits: [], pins: [], row: -1, moved: 0, zoom: false };
  const inputs = [];
  let ranges;
  // A target may have names for its values: low, medium, high.
  const named = (v) => (data.levels ? data.levels[v] ?? "" : readable(v));

  // Laws.

  const lawAt = (x, place = 0, before = []) => {
    const model = models[place];
    return model.law(model.begin(x, before), x, before);
  };

  // The laws of the second target at many values of the first.
  function lawsGiven(x) {
    const isFree = (column) => column.kind === "before", start = models[1].begin(x, [0], isFree);
    return (value) => models[1].law(start, x, [value], isFree);
  }

  // Quantiles of a mixture of laws, by halving.
  function mixedQuantile(laws, weights, q, [low, high]) {
    const cdf = (y) => laws.reduce((sum, law, i) => sum + weights[i] * law.cdf(y), 0);
    let a = low - (high - low), b = high + (high - low);
    for (let i = 0; i < 30; i++) {
      const middle = (a + b) / 2;
      if (cdf(middle) < q) a = middle; else b = middle;
    }
    return b;
  }

  function wholeRange(model, values) {
    const { alone } = model;
    let low = alone.ppf(0.001), high = alone.ppf(0.999);
    for (const v of values) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    const reach = model.kind === "discrete" ? 0.6 : 0.04 * (high - low);
    const [least, most] = model.reference ? model.reference.support : [-Infinity, Infinity];
    const edge = 0.015 * (high - low); // a stem at a bound is not at the border
    return [Math.max(low - reach, least - edge), Math.min(high + reach, most + edge)];
  }

  function zoomed(place, laws) {
    if (!state.zoom) return ranges[place];
    const low = Math.min(...laws.map((l) => l.ppf(0.002))), high = Math.max(...laws.map((l) => l.ppf(0.998)));
    const reach = Math.max(0.08 * (high - low), 1e-9 * Math.abs(high), models[place].kind === "discrete" ? 0.6 : 0);
    return [low - reach, high + reach];
  }

  // Distance to the nearest training row that the page holds.
  function nearest(x) {
    let best = Infinity;
    for (let r = 0; r < nearRows.length; r += count) {
      let sum = 0;
      for (let j = 0; j < count && sum < best; j++) {
        const a = x[j], b = nearRows[r + j];
        if (data.controls[j].options) sum += a === b ? 0 : 2;
        else if (Number.isNaN(a) || Number.isNaN(b)) sum += Number.isNaN(a) && Number.isNaN(b) ? 0 : 2;
        else sum += ((a - b) / data.near.scale[j]) ** 2;
      }
      if (sum < best) best = sum;
    }
    return Math.sqrt(best);
  }

  // Drawing.

  const height = (width) => (window.innerWidth <= 860 ? Math.min(230, 0.62 * width) : Math.min(380, 0.5 * width));
  const lawChart = new Charts.Chart(find("law-figure"), "", joint ? (w) => Math.min(w * 0.8, window.innerWidth <= 860 ? 300 : 520) : height, () => update());
  const ifChart = new Charts.Chart(find("if-figure"), "", (w) => Math.min(300, Math.max(0.42 * w, 200)), () => drawIf());
  if (data.levels) lawChart.format[0] = ifChart.format[1] = named;
  const handle = thresholdHandle();
  const numbers = {};

  function thresholdHandle() {
    const group = svg("g", { class: "cross" });
    const lines = [svg("line", { class: "limit" }), svg("line", { class: "limit" })];
    const grips = [0, 1].map(() => svg("rect", { class: "grip" }));
    const text = svg("text", { class: "threshold" });
    const knobs = data.targets.map((name, k) => svg("circle", {
      class: "handle", r: 8, role: "slider", tabindex: 0, "aria-label": `Threshold of ${name}`,
      "data-target": k,
    }));
    group.append(...lines, ...grips, text, ...knobs);
    lawChart.root.append(group);
    const place = (event) => {
      const box = lawChart.root.getBoundingClientRect(), factor = lawChart.width / box.width;
      return [(event.clientX - box.left) * factor, (event.clientY - box.top) * factor];
    };
    const drag = (targets) => (down) => {
      down.preventDefault();
      const move = (event) => {
        const [px, py] = place(event);
        if (targets.includes(0)) setLimit(0, lawChart.x.inverse(lawChart.inside(px)));
        if (targets.includes(1)) setLimit(1, lawChart.y.inverse(Laws.clip(py, lawChart.margin.top, lawChart.height - lawChart.margin.bottom)));
        update();
      };
      const stop = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", stop); };
      addEventListener("pointermove", move);
      addEventListener("pointerup", stop);
      move(down);
    };
    grips.forEach((grip, k) => grip.addEventListener("pointerdown", drag([k])));
    knobs.forEach((knob, k) => {
      knob.addEventListener("pointerdown", (event) => { knob.focus(); drag([k])(event); });
      knob.addEventListener("keydown", (event) => {
        const step = (lawChart[k ? "ys" : "xs"][1] - lawChart[k ? "ys" : "xs"][0]) / 100;
        const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
        if (!by) return;
        event.preventDefault();
        setLimit(k, state.limits[k] + by * step);
        update();
      });
    });
    return (over) => {
      const chart = lawChart, { left, right, top, bottom } = chart.margin, base = chart.height - bottom;
      const px = [chart.inside(chart.x(state.limits[0])),
                  joint ? Laws.clip(chart.y(state.limits[1]), top, base) : 0];
      const put = (element, values) => { for (const [k, v] of Object.entries(values)) element.setAttribute(k, v.toFixed ? v.toFixed(1) : v); };
      put(lines[0], { x1: px[0], x2: px[0], y1: top, y2: base });
      put(grips[0], { x: px[0] - 9, width: 18, y: top, height: base - top });
      if (joint) {
        put(lines[1], { x1: left, x2: chart.width - right, y1: px[1], y2: px[1] });
        put(grips[1], { x: left, width: chart.width - left - right, y: px[1] - 9, height: 18 });
      }
      knobs.forEach((knob, k) => {
        put(knob, { cx: k ? chart.width - right : px[0], cy: k ? px[1] : joint ? top : base });
        const [low, high] = chart[k ? "ys" : "xs"];
        put(knob, { "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": state.limits[k],
                    "aria-valuetext": `${readable(state.limits[k])}; probability above it ${over[k]}` });
      });
      const atRight = px[0] < chart.width - 150;
      put(text, { x: px[0] + (atRight ? 8 : -8), y: top - (joint ? -14 : 6), "text-anchor": atRight ? "start" : "end" });
      text.textContent = joint ? "" : `${over[0]} above ${(data.levels && named(state.limits[0])) || readable(state.limits[0])}`;
    };
  }

  function setLimit(k, value) {
    const digits = 4;
    state.limits[k] = Number(value.toPrecision(digits));
    numbers.limits[k].value = state.limits[k];
  }

  function number(key, label, kind, ...tools) {
    const value = html("dd"), small = html("small");
    const text = document.createTextNode("");
    value.append(text, small);
    find("numbers").append(html("div", { class: kind }, html("dt", {}, label, ...tools), value));
    numbers[key] = (main, more = "") => { text.data = main; small.textContent = more; };
  }

  function numberBoxes() {
    const coverage = html("select", { "aria-label": "Coverage of the interval" });
    for (const c of [0.5, 0.8, 0.9, 0.95, 0.99]) {
      coverage.append(new Option(`${Math.round(100 * c)} % interval`, c, false, c === 0.9));
    }
    coverage.addEventListener("change", () => { state.coverage = Number(coverage.value); update(); });
    numbers.limits = data.targets.map((name, k) => {
      const input = html("input", { type: "number", step: "any", "aria-label": `Threshold of ${name}` });
      input.addEventListener("input", () => {
        if (input.value === "" || !Number.isFinite(input.valueAsNumber)) return;
        state.limits[k] = input.valueAsNumber;
        update();
      });
      return input;
    });
    if (joint) {
      find("numbers").classList.add("three");
      data.targets.forEach((name, k) => number(`median${k}`, `Median of ${name}`, "main"));
      number("link", "Correlation", "main");
      data.targets.forEach((name, k) => number(`over${k}`, `P(${name} > v), v =`, "over", numbers.limits[k]));
      find("pin").before(coverage);
      number("both", "P(both above)", "over");
    } else {
      number("median", "Median", "main");
      number("interval", "", "main", coverage);
      number("over", "P(y > v), v =", "over", numbers.limits[0]);
    }
  }

  function legend(place, entries) {
    find(place).replaceChildren(...entries.map(([style, text]) => {
      const mark = html("i");
      Object.assign(mark.style, style);
      return html("span", {}, mark, text);
    }));
  }

  function drawLaw() {
    const [name] = data.targets, law = lawAt(state.x);
    const outcome = outcomeOf(state.row, 0);
    const range = zoomed(0, [law, ...state.pins.map((p) => p.law)]);
    const found = Charts.lawChart(lawChart, models[0], {
      law, pins: state.pins, range, coverage: state.coverage, limit: state.limits[0], outcome, name,
    });
    const over = percent(law.sf(state.limits[0]));
    handle([over]);
    numbers.median(named(found.median), outcome === null ? "" : `outcome ${named(outcome)}, the ${percent(law.cdf(outcome))} quantile`);
    numbers.interval(`${named(found.low)} to ${named(found.high)}`, data.levels ? "" : `${readable(found.high - found.low)} wide`);
    numbers.over(over, `without features ${percent(models[0].alone.sf(state.limits[0]))}`);
    lawChart.label(`Distribution of ${name}: median ${named(found.median)}, ${Math.round(100 * state.coverage)} % interval from ${named(found.low)} to ${named(found.high)}, probability above ${readable(state.limits[0])} is ${over}`);
    return law;
  }

  function jointCells(x, axes) {
    return Charts.cellTable(models, lawsGiven(x), lawAt(x), axes);
  }

  function drawJoint() {
    const x = state.x, law = lawAt(x), given = lawsGiven(x);
    const axes = models.map((m, k) => Charts.cellEnds(m, ranges[k]));
    const cells = Charts.cellTable(models, given, law, axes);
    const some = outcomeOf(state.row, 0) === null ? null : [0, 1].map((k) => outcomeOf(state.row, k));
    Charts.jointChart(lawChart, models, {
      cells, pins: state.pins, axes, names: data.targets, outcome: some,
      ranges: axes.map((a) => [a.ends[0], a.ends[a.ends.length - 1]]),
    });
    const { low, high, sides, over, both, correlation } = jointNumbers(law, cells, axes);
    data.targets.forEach((name, k) => {
      const own = some ? `, outcome ${readable(some[k])}` : "";
      numbers[`median${k}`](readable(sides[k]), `${readable(low[k])} to ${readable(high[k])}${own}`);
      numbers[`over${k}`](percent(over[k]), `without features ${percent(models[k].alone.sf(state.limits[k]))}`);
    });
    numbers.both(percent(both), `if independent ${percent(over[0] * over[1])}`);
    numbers.link(readable(correlation, 2), "given these features");
    handle(over.map(percent));
    lawChart.label(`Joint distribution of ${data.targets.join(" and ")}: medians ${sides.map((v) => readable(v)).join(" and ")}, probability that both are above their thresholds ${percent(both)}`);
    return law;
  }

  // Of the second target by sums over cells of the first.
  function jointNumbers(law, cells, axes) {
    const total = cells.along.reduce((a, b) => a + b, 0) || 1;
    const weights = cells.along.map((p) => p / total);
    const kept = weights.map((w, i) => [w, i]).filter(([w]) => w > 1e-4);
    const laws = kept.map(([, i]) => cells.laws[i]), share = kept.map(([w]) => w);
    const tail = (1 - state.coverage) / 2, levels = [tail, 0.5, 1 - tail];
    const first = levels.map((q) => law.ppf(q));
    const second = levels.map((q) => mixedQuantile(laws, share, q, ranges[1]));
    const sf = laws.map((l) => l.sf(state.limits[1]));
    const above = sf.reduce((sum, v, k) => sum + v * share[k], 0);
    // A cell that the threshold divides counts by the part of it that lies above.
    const ends = axes[0].ends;
    const both = kept.reduce((sum, [, i], k) => {
      const from = Math.max(state.limits[0], ends[i]);
      return sum + (from < ends[i + 1] ? Math.max(law.cdf(ends[i + 1]) - law.cdf(from), 0) * sf[k] : 0);
    }, 0);
    let m1 = 0, m2 = 0, v1 = 0, v2 = 0, c = 0, all = 0;
    const each = (visit) => cells.table.forEach((column, i) => column.forEach((p, j) => visit(p, axes[0].middles[i], axes[1].middles[j])));
    each((p, a, b) => { all += p; m1 += p * a; m2 += p * b; });
    m1 /= all; m2 /= all;
    each((p, a, b) => { v1 += p * (a - m1) ** 2; v2 += p * (b - m2) ** 2; c += p * (a - m1) * (b - m2); });
    return { low: [first[0], second[0]], sides: [first[1], second[1]], high: [first[2], second[2]],
             over: [law.sf(state.limits[0]), above], both, correlation: c / Math.sqrt(v1 * v2) };
  }

  // What if.

  function drawIf() {
    const chosen = find("if-feature").value, j = chosen === "" ? state.moved : Number(chosen);
    const control = data.controls[j], place = joint ? Number(find("if-target").value) : 0;
    const tail = (1 - state.coverage) / 2, levels = [tail, 0.25, 0.5, 0.75, 1 - tail];
    const at = control.options
      ? control.options.map((_, i) => i)
      : Array.from({ length: STEPS + 1 }, (_, i) => control.low + ((control.high - control.low) * i) / STEPS);
    const isFree = (column) => column.kind !== "before" && column.source === j;
    const x = Float64Array.from(state.x), starts = models[0].begin(x, [], isFree);
    const points = at.map((v) => {
      x[j] = v;
      const law = models[0].law(starts, x, [], isFree);
      if (place === 0) return { x: v, q: levels.map((q) => law.ppf(q)) };
      const given = lawsGiven(x), parts = 7;
      const laws = Array.from({ length: parts }, (_, i) => given(law.ppf((i + 0.5) / parts)));
      const weights = laws.map(() => 1 / parts);
      return { x: v, q: levels.map((q) => mixedQuantile(laws, weights, q, ranges[1])) };
    });
    const [low, high] = ranges[place];
    const least = Math.min(...points.map((p) => p.q[0])), most = Math.max(...points.map((p) => p.q[4]));
    const room = 0.05 * (most - least || 1);
    Charts.fanChart(ifChart, {
      points, names: control.options || null, xs: [control.low, control.high],
      ys: [Math.max(Math.min(least - room, most), low), Math.min(most + room, high)],
      here: state.x[j], steps: models[place].kind === "discrete", xName: control.name, yName: data.targets[place],
    });
    const middle = points.map((p) => p.q[2]);
    ifChart.label(`Quantiles of ${data.targets[place]} along ${control.name}: the median runs from ${readable(middle[0])} to ${readable(middle[middle.length - 1])}`);
    legend("if-legend", [
      [{ background: "var(--accent)" }, "median"],
      [{ background: "var(--accent)", opacity: 0.5 }, "middle half"],
      [{ background: "var(--accent)", opacity: 0.25 }, `${Math.round(100 * state.coverage)} % interval`],
      [{ borderLeft: "2px dashed var(--ink)", width: "2px", borderRadius: 0 }, "here; all other features as set"],
    ]);
  }

  let waiting = 0;
  function update() {
    if (!state.x) return;
    if (joint) {
      drawJoint();
      // Curves of two targets take longer than a frame: they follow when the hand rests.
      clearTimeout(waiting);
      waiting = setTimeout(drawIf, 60);
    } else {
      drawLaw();
      drawIf();
    }
    drawWarning();
  }

  function drawWarning() {
    const outside = data.controls.filter((c, j) => !c.options && (state.x[j] < c.low || state.x[j] > c.high));
    inputs.forEach((input, j) => input.box.classList.toggle("out", outside.includes(data.controls[j])));
    const far = nearest(state.x) > data.near.limit;
    const text = outside.length
      ? `${outside.map((c) => c.name).join(", ")}: outside of the range of the training rows. The model extrapolates.`
      : far ? "No training row is like this one: the combination is far from all of them, and the model extrapolates." : "";
    if (find("far").textContent !== text) find("far").textContent = text;
    find("far").hidden = !text;
  }

  // Controls.

  function setControl(j, value) {
    state.x[j] = value;
    state.moved = j;
    state.row = -1;
    find("row").value = "";
    showControl(j);
    update();
  }

  function showControl(j) {
    const { range, number: field, select, absent } = inputs[j], value = state.x[j];
    if (select) {
      select.value = String(value);
      return;
    }
    const missing = Number.isNaN(value);
    if (absent) absent.checked = missing;
    range.disabled = field.disabled = missing;
    if (missing) return;
    range.value = value;
    if (document.activeElement !== field || field.valueAsNumber !== value) field.value = Number(value.toPrecision(6));
    range.setAttribute("aria-valuetext", readable(value, 6));
  }

  function buildControl(control, j) {
    const id = `feature-${j}`, box = html("div", { class: "control" });
    const label = html("label", { for: id });
    label.textContent = control.name;
    if (control.options) {
      const select = html("select", { id });
      control.options.forEach((text, code) => select.append(new Option(text, code)));
      if (rowHas(j, -1)) select.append(new Option("(never seen in training)", -1));
      select.addEventListener("change", () => setControl(j, Number(select.value)));
      box.append(html("div", { class: "top" }, label), select);
      inputs[j] = { box, select };
      return box;
    }
    const range = html("input", { type: "range", id, min: control.low, max: control.high, step: control.step });
    const field = html("input", { type: "number", step: "any", "aria-label": `${control.name}, as a number` });
    range.addEventListener("input", () => setControl(j, range.valueAsNumber));
    field.addEventListener("input", () => {
      if (field.value !== "" && Number.isFinite(field.valueAsNumber)) setControl(j, field.valueAsNumber);
    });
    field.addEventListener("change", () => showControl(j));
    box.append(html("div", { class: "top" }, label, field), html("div", { class: "track" }, histogram(control), range));
    let absent = null;
    if (control.missing) {
      absent = html("input", { type: "checkbox" });
      absent.addEventListener("change", () => setControl(j, absent.checked ? NaN : range.valueAsNumber));
      box.append(html("label", { class: "inline absent" }, absent, "not known"));
    }
    inputs[j] = { box, range, number: field, absent };
    return box;
  }

  const rowHas = (j, code) => data.rows.numbers.some((_, r) => rowValues[r * count + j] === code);

  // As wide as the way of the slider's thumb; whole numbers have a bar each, centred at them.
  function histogram({ counts, whole }) {
    const most = Math.max(...counts, 1), room = 100 / (whole ? counts.length - 1 : counts.length);
    const bar = whole ? Math.min(room * 0.7, 6) : room - 0.4, shift = whole ? -bar / 2 : 0.2;
    return svg("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" },
      ...counts.map((c, i) => svg("rect", {
        x: i * room + shift, width: bar, y: 30 - 30 * Math.sqrt(c / most), height: 30 * Math.sqrt(c / most),
      })));
  }

  // Rows and scenarios.

  const outcomeOf = (r, k) => {
    if (r < 0 || !outcomes) return null;
    const v = outcomes[r * (outcomes.length / data.rows.numbers.length) + k];
    return Number.isFinite(v) ? v : null;
  };

  function setRow(r) {
    state.row = r;
    state.x = rowValues.slice(r * count, (r + 1) * count);
    find("row").value = String(r);
    data.controls.forEach((_, j) => showControl(j));
    update();
  }

  // The row that is nearest to the middle of all.
  function usualRow() {
    const middle = data.controls.map((c, j) => {
      const own = data.rows.numbers.map((_, r) => rowValues[r * count + j]).filter((v) => !Number.isNaN(v)).sort((a, b) => a - b);
      return own[own.length >> 1];
    });
    let best = 0, least = Infinity;
    data.rows.numbers.forEach((_, r) => {
      let sum = 0;
      data.controls.forEach((c, j) => {
        const v = rowValues[r * count + j];
        sum += c.options ? (v === middle[j] ? 0 : 0.5) : Number.isNaN(v) ? 2 : ((v - middle[j]) / data.near.scale[j]) ** 2;
      });
      if (sum < least) { least = sum; best = r; }
    });
    return best;
  }

  function pin() {
    const used = state.pins.map((p) => p.colour);
    const colour = [1, 2, 3].find((c) => !used.includes(c));
    if (!colour) return;
    const x = Float64Array.from(state.x);
    const axes = joint && models.map((m, k) => Charts.cellEnds(m, ranges[k]));
    state.pins.push({ x, colour, row: state.row, law: lawAt(x), cells: joint && jointCells(x, axes) });
    update();
    drawPins();
  }

  const shown = (control, value) => control.options ? control.options[value] ?? "(never seen)" : Number.isNaN(value) ? "not known" : readable(value, 6);

  function drawPins() {
    find("pins").hidden = state.pins.length === 0;
    find("pin").disabled = state.pins.length >= MOST_PINS;
    const tail = (1 - state.coverage) / 2, name = data.targets[0];
    const head = html("tr", {}, ...["Scenario", joint ? `${name}, median` : "Median", `${Math.round(100 * state.coverage)} % interval`, `P(${joint ? name : "y"} > ${readable(state.limits[0])})`, "Differs from what is set in", ""].map((t) => html("th", { scope: "col" }, t)));
    const rows = [{ x: state.x, law: lawAt(state.x) }, ...state.pins].map((one, i) => {
      const title = html("th", { scope: "row" }, i ? ["A", "B", "C"][one.colour - 1] : "Now");
      title.style.color = i ? `var(--pin-${one.colour})` : "var(--accent)";
      const differs = i ? data.controls.map((c, j) => [c, j]).filter(([, j]) => !Object.is(one.x[j], state.x[j])) : [];
      const text = differs.slice(0, 4).map(([c, j]) => `${c.name} ${shown(c, one.x[j])}`).join(", ") + (differs.length > 4 ? `, and ${differs.length - 4} more` : "");
      const tools = html("td");
      if (i) {
        const label = ["A", "B", "C"][one.colour - 1];
        const back = html("button", { type: "button", "aria-label": `Go back to scenario ${label}` }, "Show");
        back.addEventListener("click", () => {
          state.x = Float64Array.from(one.x);
          state.row = one.row;
          find("row").value = one.row < 0 ? "" : String(one.row);
          data.controls.forEach((_, j) => showControl(j));
          update();
        });
        const drop = html("button", { type: "button", "aria-label": `Remove scenario ${label}` }, "Remove");
        drop.addEventListener("click", () => { state.pins.splice(i - 1, 1); update(); drawPins(); find("pin").focus(); });
        tools.append(back, " ", drop);
      }
      return html("tr", {}, title,
        html("td", {}, named(one.law.ppf(0.5))),
        html("td", {}, `${named(one.law.ppf(tail))} to ${named(one.law.ppf(1 - tail))}`),
        html("td", {}, percent(one.law.sf(state.limits[0]))),
        html("td", { class: "wrap" }, text), tools);
    });
    find("pins-table").replaceChildren(html("thead", {}, head), html("tbody", {}, ...rows));
  }

  // The page as a whole.

  function theme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    find("theme").setAttribute("aria-pressed", String(dark));
  }

  function sentences() {
    find("title").textContent = data.title;
    find("lead").textContent = `Move a feature and watch the distribution of ${data.targets.join(" and ")} follow. The model learned from ${data.training.count >= 20000 ? "20,000 rows or more" : `${data.training.count.toLocaleString("en-US")} rows`}.`;
    find("close").textContent = data.compared
      ? `Computed by a small network that stands for the whole model. On ${data.compared} rows of the data it is ${data.loss.toFixed(3)} nats away (mean Kullback–Leibler divergence; below 0.1 the difference is hard to see).`
      : `Computed by the model itself, one small network. It lost ${data.loss.toFixed(3)} nats when it was distilled.`;
    const notes = data.notes.map((text) => html("p", {}, text));
    find("notes").append(...notes);
    find("notes").hidden = notes.length === 0;
    const entries = [
      [{ background: "var(--accent)" }, "given these features"],
      [{ background: "var(--accent)", opacity: 0.35 }, "interval"],
      [{ background: "var(--alone)" }, "without features"],
      [{ background: "var(--limit)", width: "3px" }, "threshold, to drag"],
      ...(outcomes ? [[{ background: "var(--ink)", width: "9px", height: "9px", transform: "rotate(45deg)", borderRadius: 0 }, "outcome of the row"]] : []),
    ];
    legend("legend", joint ? [[{ background: "var(--accent)" }, "regions with 20, 50, 80 and 95 % of the probability"], ...entries.slice(3)] : entries);
  }

  function start() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    theme(dark.matches);
    dark.addEventListener("change", () => theme(dark.matches));
    find("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme !== "dark"));
    let before = "light";
    addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; theme(false); });
    addEventListener("afterprint", () => theme(before === "dark"));
    ranges = models.map((m, k) => wholeRange(m, data.rows.numbers.map((_, r) => outcomeOf(r, k) ?? NaN)));
    sentences();
    numberBoxes();
    const list = data.controls.map(buildControl);
    find("list").append(...list);
    if (count > FEW) {
      const more = find("more");
      more.hidden = false;
      const show = (all) => {
        list.forEach((box, j) => { box.hidden = !all && j >= FEW; });
        more.textContent = all ? "Show fewer features" : `Show all ${count} features`;
        more.setAttribute("aria-expanded", String(all));
      };
      let all = false;
      show(all);
      more.addEventListener("click", () => show(all = !all));
    }
    find("if-feature").append(new Option("the feature moved last", ""), ...data.controls.map((c, j) => new Option(c.name, j)));
    find("if-feature").addEventListener("change", drawIf);
    find("if-target").append(...data.targets.map((name, k) => new Option(name, k)));
    find("if-target-label").hidden = !joint;
    find("if-target").addEventListener("change", drawIf);
    find("row").append(new Option("none", ""), ...data.rows.numbers.map((n, r) => new Option(`row ${n}`, r)));
    find("row").addEventListener("change", () => { if (find("row").value !== "") setRow(Number(find("row").value)); });
    const turn = (by) => setRow((Math.max(state.row, by > 0 ? -1 : 0) + by + data.rows.numbers.length) % data.rows.numbers.length);
    find("previous").addEventListener("click", () => turn(-1));
    find("next").addEventListener("click", () => turn(1));
    const usual = usualRow();
    find("reset").addEventListener("click", () => setRow(usual));
    find("zoom").addEventListener("change", () => { state.zoom = find("zoom").checked; update(); });
    find("zoom").parentElement.hidden = joint;
    find("pin").addEventListener("click", pin);
    models.forEach((m, k) => {
      const middle = m.alone.ppf(0.5);
      setLimit(k, m.kind === "discrete" ? middle : Number(middle.toPrecision(2)));
    });
    for (const event of ["input", "change", "click"]) addEventListener(event, () => { if (state.pins.length) drawPins(); });
    setRow(usual);
  }

  start();
  return { law: lawAt, controls: data.controls, models, state, set: setControl };
})();
window.explorer = explorer;
