"use strict";
// The numbers of the page: networks, and the laws that they stand for. Nothing here touches the
// document. The formulas are those of mcdensity.distribution (loglinear, discrete, mixed), of
// mcdensity._bounds and of mcdensity.experts.distilled.
const Laws = (() => {
  const FLOOR = 700; // exp(-700) is still a normal number
  const LEAST_FALL = 10;
  const TINY = 2.2250738585072014e-308;
  const STEP = 2 ** -53;
  const SLACK = 1e-12;

  function decode(text, Type) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return Float64Array.from(new Type(bytes.buffer));
  }
  const floats = (text) => decode(text, Float32Array);
  const doubles = (text) => decode(text, Float64Array);

  // The index of the last entry that is not larger than the value, -1 if there is none.
  function last(sorted, value) {
    let low = -1, high = sorted.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle; else high = middle;
    }
    return low;
  }

  function cellMean(a, b) {
    const low = Math.exp(a), high = Math.exp(b), rise = b - a;
    if (rise * rise >= 9e-4) return (high - low) / rise;
    const x = (rise * rise) / 4;
    return ((low + high) / 2) * (1 - x * (1 / 3 - x * (2 / 15 - (x * 17) / 315)));
  }
  const meanExponential = (d) => (d < 1e-8 ? 1 : -Math.expm1(-d) / d);
  const log1pRatio = (z) => (Math.abs(z) < 1e-8 ? 1 : Math.log1p(z) / z);
  const clip = (v, low, high) => Math.min(Math.max(v, low), high);

  // A density whose logarithm is linear between knots; with tails it falls exponentially outside.
  class LogLinear {
    constructor(knots, logDensity, tails) {
      const size = knots.length;
      const value = Float64Array.from(logDensity);
      let top = -Infinity;
      for (const v of value) if (v > top) top = v;
      for (let i = 0; i < size; i++) value[i] = Math.max(value[i], top - FLOOR) - top;
      const mass = new Float64Array(size - 1);
      let total = 0;
      for (let i = 0; i < size - 1; i++) {
        mass[i] = (knots[i + 1] - knots[i]) * cellMean(value[i], value[i + 1]);
        total += mass[i];
      }
      this.rate = [Infinity, Infinity];
      this.outside = [0, 0];
      if (tails) {
        const least = LEAST_FALL / (knots[size - 1] - knots[0]);
        const fall = (a, b, width) => Math.max(width > 0 ? (b - a) / width : 0, least);
        this.rate = [
          fall(value[0], value[1], knots[1] - knots[0]),
          fall(value[size - 1], value[size - 2], knots[size - 1] - knots[size - 2]),
        ];
        this.outside = [Math.exp(value[0]) / this.rate[0],
                        Math.exp(value[size - 1]) / this.rate[1]];
        total += this.outside[0] + this.outside[1];
      }
      const log = Math.log(total);
      for (let i = 0; i < size; i++) value[i] -= log;
      for (let i = 0; i < size - 1; i++) mass[i] /= total;
      this.outside = this.outside.map((v) => v / total);
      this.below = new Float64Array(size);
      this.above = new Float64Array(size);
      this.below[0] = this.outside[0];
      this.above[size - 1] = this.outside[1];
      for (let i = 0; i < size - 1; i++) this.below[i + 1] = this.below[i] + mass[i];
      for (let i = size - 2; i >= 0; i--) this.above[i] = this.above[i + 1] + mass[i];
      this.knots = knots;
      this.value = value;
      this.tails = tails;
    }

    cell(sorted, v) {
      const index = last(sorted, v);
      return this.tails ? index : clip(index, 0, this.knots.length - 2);
    }

    logpdf(y) {
      const { knots, value, rate } = this, size = knots.length;
      const k = this.cell(knots, y);
      if (k < 0) return value[0] + rate[0] * (y - knots[0]);
      if (k > size - 2) return value[size - 1] - rate[1] * (y - knots[size - 1]);
      const width = Math.max(knots[k + 1] - knots[k], 1e-300);
      return value[k] + (value[k + 1] - value[k]) * clip((y - knots[k]) / width, 0, 1);
    }

    partial(a, b, t) {
      return t * Math.exp(Math.max(a, b)) * meanExponential(Math.abs(b - a));
    }

    cdf(y) {
      const { knots, value, rate, outside } = this, size = knots.length;
      const k = this.cell(knots, y);
      if (k < 0) return outside[0] * Math.exp(rate[0] * (y - knots[0]));
      if (k > size - 2) return 1 - outside[1] * Math.exp(-rate[1] * (y - knots[size - 1]));
      const width = Math.max(knots[k + 1] - knots[k], 1e-300);
      const t = clip(y - knots[k], 0, width), a = value[k];
      const inner = this.partial(a, a + (value[k + 1] - a) * (t / width), t);
      return clip(this.below[k] + inner, 0, 1);
    }

    sf(y) {
      const { knots, value, rate, outside } = this, size = knots.length;
      const k = this.cell(knots, y);
      if (k < 0) return 1 - outside[0] * Math.exp(rate[0] * (y - knots[0]));
      if (k > size - 2) return outside[1] * Math.exp(-rate[1] * (y - knots[size - 1]));
      const width = Math.max(knots[k + 1] - knots[k], 1e-300);
      const t = clip(knots[k + 1] - y, 0, width), b = value[k + 1];
      const inner = this.partial(b, b + (value[k] - b) * (t / width), t);
      return clip(this.above[k + 1] + inner, 0, 1);
    }

    ppf(q) {
      const { knots, value, rate, outside } = this, size = knots.length;
      if (q <= 0) return this.tails ? -Infinity : knots[0];
      if (q >= 1) return this.tails ? Infinity : knots[size - 1];
      const k = this.cell(this.below, q);
      if (k < 0) return knots[0] + Math.log(q / outside[0]) / rate[0];
      if (k > size - 2) return knots[size - 1] - Math.log((1 - q) / outside[1]) / rate[1];
      const left = knots[k], width = Math.max(knots[k + 1] - left, 1e-300);
      const a = value[k], b = value[k + 1], slope = (b - a) / width;
      // From the end where the density is larger, so that nothing overflows.
      if (b > a) {
        const back = Math.max(this.below[k + 1] - q, 0) * Math.exp(-b);
        const step = width - back * log1pRatio(Math.max(-slope * back, -1));
        return left + clip(Number.isNaN(step) ? 0 : step, 0, width);
      }
      const ahead = Math.max(q - this.below[k], 0) * Math.exp(-a);
      const step = ahead * log1pRatio(Math.max(slope * ahead, -1));
      return left + clip(Number.isNaN(step) ? 0 : step, 0, width);
    }
  }

  // A map of an interval onto the line; the identity where there are no bounds.
  const softlog = (z) => z + Math.log(-Math.expm1(-z));
  const logaddexp = (a, b) =>
    Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b)));

  class Bounds {
    constructor(spec) {
      const infinite = (v, sign) => (v === null ? sign * Infinity : v);
      this.low = infinite(spec.low, -1);
      this.high = infinite(spec.high, 1);
      this.scale = infinite(spec.scale, 1);
      this.knee = infinite(spec.knee, 1);
      this.nearest = spec.nearest;
    }

    distances(y) {
      const below = y - this.low, above = this.high - y;
      return [below > 1e-290 ? below : this.nearest, above > 1e-290 ? above : this.nearest];
    }

    log(distance) {
      const within = Math.min(distance, this.knee);
      return Math.log(within) + (distance - within) / this.knee;
    }

    exp(value) {
      const end = Math.log(this.knee);
      const inner = Math.exp(Math.min(value, end));
      return inner + (Number.isFinite(end) ? this.knee * Math.max(value - end, 0) : 0);
    }

    forward(y) {
      const [below, above] = this.distances(y), s = this.scale;
      if (s === Infinity) {
        if (this.high === Infinity) return this.log(below);
        if (this.low === -Infinity) return -this.log(above);
        return Math.log(below) - Math.log(above);
      }
      let out = 0;
      if (this.low > -Infinity) out += softlog(below / s);
      if (this.high < Infinity) out -= softlog(above / s);
      return s * out;
    }

    logSlope(y) {
      const [below, above] = this.distances(y), s = this.scale;
      if (s === Infinity) {
        if (this.high === Infinity) return -Math.log(Math.min(below, this.knee));
        if (this.low === -Infinity) return -Math.log(Math.min(above, this.knee));
        return Math.log(this.high - this.low) - Math.log(below) - Math.log(above);
      }
      const term = (distance) => -Math.log(-Math.expm1(-distance / s));
      if (this.high === Infinity) return term(below);
      if (this.low === -Infinity) return term(above);
      return logaddexp(term(below), term(above));
    }

    backward(value) {
      const { low, high, scale: s } = this;
      if (s === Infinity) {
        if (high === Infinity) return low + this.exp(value);
        if (low === -Infinity) return high - this.exp(-value);
        return low + (high - low) / (1 + Math.exp(-value));
      }
      if (high === Infinity) return low + s * logaddexp(0, value / s);
      if (low === -Infinity) return high - s * logaddexp(0, -value / s);
      const ratio = Math.exp(-Math.min(Math.abs(value) / s, FLOOR));
      const most = Math.exp((high - low) / s);
      const root = Math.sqrt((1 - ratio) ** 2 + 4 * ratio * most);
      const distance = s * Math.log1p((2 * ratio * (most - 1)) / (1 + ratio + root));
      return value <= 0 ? low + distance : high - distance;
    }
  }

  // The law of y alone, which the networks' ratios are to; in the units of y.
  class Reference {
    constructor(spec) {
      this.law = new LogLinear(doubles(spec.knots), doubles(spec.value), true);
      this.location = spec.location;
      this.scale = spec.scale;
      this.bounds = spec.bounds ? new Bounds(spec.bounds) : null;
    }

    get support() {
      return this.bounds ? [this.bounds.low, this.bounds.high] : [-Infinity, Infinity];
    }

    z(y) {
      return ((this.bounds ? this.bounds.forward(y) : y) - this.location) / this.scale;
    }

    logpdf(y) {
      const [low, high] = this.support;
      if (y < low || y > high) return -Infinity;
      const slope = this.bounds ? this.bounds.logSlope(y) : 0;
      return this.law.logpdf(this.z(y)) + slope - Math.log(this.scale);
    }

    cdf(y) {
      const [low, high] = this.support;
      return y <= low ? 0 : y >= high ? 1 : this.law.cdf(this.z(y));
    }

    ppf(u) {
      const w = this.location + this.scale * this.law.ppf(u);
      if (!this.bounds) return w;
      return clip(this.bounds.backward(w), this.bounds.low, this.bounds.high);
    }
  }

  // Laws. `density` is that of the part without atoms; `atoms` and `masses` are the others.

  class Continuous {
    constructor(reference, knots, ratio) {
      this.reference = reference;
      this.law = new LogLinear(knots, ratio, false);
      this.atoms = this.masses = [];
    }

    logpdf(y) {
      return this.law.logpdf(this.reference.cdf(y)) + this.reference.logpdf(y);
    }

    density(grid) {
      const { knots, value } = this.law, out = new Float64Array(grid.y.length);
      let k = 0;
      for (let i = 0; i < out.length; i++) {
        const u = grid.u[i];
        while (k < knots.length - 2 && knots[k + 1] <= u) k++;
        const width = Math.max(knots[k + 1] - knots[k], 1e-300);
        const part = clip((u - knots[k]) / width, 0, 1);
        out[i] = Math.exp(value[k] + (value[k + 1] - value[k]) * part + grid.log[i]);
      }
      return out;
    }

    cdf(y) { return this.law.cdf(this.reference.cdf(y)); }
    sf(y) { return this.law.sf(this.reference.cdf(y)); }

    ppf(q) {
      const u = this.law.ppf(q);
      return this.reference.ppf(q <= 0 || q >= 1 ? u : clip(u, TINY, 1 - STEP));
    }
  }

  class Discrete {
    constructor(values, weights) {
      let total = 0;
      for (const w of weights) total += w;
      this.atoms = values;
      this.masses = Float64Array.from(weights, (w) => w / total);
      this.below = new Float64Array(values.length);
      this.above = new Float64Array(values.length + 1);
      let sum = 0;
      this.masses.forEach((m, i) => { this.below[i] = sum += m; });
      this.below[values.length - 1] = 1;
      for (let i = values.length - 1; i >= 0; i--) {
        this.above[i] = this.above[i + 1] + this.masses[i];
      }
    }

    logpdf(y) {
      const k = last(this.atoms, y);
      return k >= 0 && this.atoms[k] === y ? Math.log(this.masses[k]) : -Infinity;
    }

    density() { return null; }

    cdf(y) {
      const k = last(this.atoms, y);
      return k < 0 ? 0 : this.below[k];
    }

    sf(y) {
      const k = last(this.atoms, y);
      return k < 0 ? 1 : this.above[k + 1];
    }

    ppf(q) {
      let k = 0;
      while (k < this.atoms.length - 1 && (this.below[k] < q - SLACK || this.masses[k] === 0)) k++;
      return this.atoms[k];
    }
  }

  class Mixed {
    constructor(atoms, masses, rest) {
      this.atoms = atoms;
      this.masses = masses;
      this.rest = rest;
      this.share = clip(1 - masses.reduce((a, b) => a + b, 0), 0, 1);
    }

    logpdf(y) {
      const k = this.atoms.indexOf(y);
      return k >= 0 ? Math.log(this.masses[k]) : this.rest.logpdf(y) + Math.log(this.share);
    }

    density(grid) { return this.rest.density(grid).map((v) => v * this.share); }

    jumps(chosen) {
      let sum = 0;
      this.atoms.forEach((a, j) => { if (chosen(a)) sum += this.masses[j]; });
      return sum;
    }

    cdf(y) { return Math.min(this.jumps((a) => a <= y) + this.share * this.rest.cdf(y), 1); }
    sf(y) { return Math.min(this.jumps((a) => a > y) + this.share * this.rest.sf(y), 1); }

    ppf(q) {
      let passed = 0, low = -Infinity, high = Infinity, jump = 0;
      for (let j = 0; j < this.atoms.length; j++) {
        const atom = this.atoms[j], mass = this.masses[j];
        const before = this.share * this.rest.cdf(atom);
        const start = before + jump, end = start + mass;
        jump += mass;
        if ((q > start && q <= end) || (start <= 0 && q <= 0 && mass > 0)) return atom;
        if (q > end) { passed += mass; low = atom; }
        if (q <= start && high === Infinity) high = atom;
      }
      const level = this.share > 0 ? (q - passed) / this.share : 0.5;
      const found = this.rest.ppf(q >= 1 ? 1 : clip(level, 0, 1));
      return clip(found, low, high);
    }
  }

  // Networks.

  class Network {
    constructor(spec) {
      this.columns = spec.columns;
      this.knots = doubles(spec.knots);
      this.width = spec.width;
      this.size = spec.width + this.knots.length;
      this.first = floats(spec.first); // a row for each input: to the first layer, past the layers
      this.bias = floats(spec.bias);
      this.layers = spec.layers.map((layer) => ({
        weight: floats(layer.weight), bias: floats(layer.bias),
      }));
      this.head = floats(spec.head);
    }

    // What the network sees of a column: a control, or a target before this one.
    value(column, x, before) {
      let v;
      if (column.kind === "before") v = before[column.source];
      else if (column.kind === "missing") v = Number.isNaN(x[column.source]) ? 1 : 0;
      else if (column.kind === "is") v = x[column.source] === column.code ? 1 : 0;
      else v = Number.isNaN(x[column.source]) ? column.fill : x[column.source];
      return clip((v - column.mean) / column.scale, column.low, column.high);
    }

    add(sums, input, factor) {
      if (factor === 0) return;
      const { first, size } = this, start = input * size;
      for (let i = 0; i < size; i++) sums[i] += factor * first[start + i];
    }

    addColumn(sums, column, x, before) {
      const s = this.value(column, x, before), edges = column.edges;
      this.add(sums, column.input, s);
      for (let k = 0; k + 1 < edges.length; k++) {
        const part = (s - edges[k]) / (edges[k + 1] - edges[k]);
        if (part <= 0) break;
        this.add(sums, column.bins + k, Math.min(part, 1));
      }
    }

    // Sums over all columns but the free ones, which `ratio` adds: many x that differ in few
    // columns are cheap.
    begin(x, before, isFree) {
      const sums = Float64Array.from(this.bias);
      for (const column of this.columns) {
        if (!isFree || !isFree(column)) this.addColumn(sums, column, x, before);
      }
      return sums;
    }

    ratio(start, x, before, isFree) {
      const sums = Float64Array.from(start), width = this.width;
      if (isFree) {
        for (const column of this.columns) {
          if (isFree(column)) this.addColumn(sums, column, x, before);
        }
      }
      const silu = (v) => v / (1 + Math.exp(-v));
      let hidden = sums.subarray(0, width).map(silu);
      for (const { weight, bias } of this.layers) {
        const next = Float64Array.from(bias);
        for (let i = 0; i < width; i++) {
          const h = hidden[i], row = i * width;
          for (let j = 0; j < width; j++) next[j] += h * weight[row + j];
        }
        hidden = next.map(silu);
      }
      const out = sums.slice(width), n = out.length;
      for (let i = 0; i < width; i++) {
        const h = hidden[i], row = i * n;
        for (let j = 0; j < n; j++) out[j] += h * this.head[row + j];
      }
      return out;
    }
  }

  // Models of one target. `begin` computes what many laws share, `law` finishes one of them.

  class ContinuousModel {
    constructor(spec) {
      this.kind = "continuous";
      this.network = new Network(spec.network);
      this.reference = new Reference(spec.reference);
      this.alone = new Continuous(this.reference, [0, 1], [0, 0]);
    }

    begin(x, before, isFree) { return this.network.begin(x, before, isFree); }

    law(start, x, before, isFree) {
      const ratio = this.network.ratio(start, x, before, isFree);
      return new Continuous(this.reference, this.network.knots, ratio);
    }

    // Points with what does not depend on x.
    grid(y) {
      return { y, u: y.map((v) => this.reference.cdf(v)),
               log: y.map((v) => this.reference.logpdf(v)) };
    }
  }

  class DiscreteModel {
    constructor(spec) {
      this.kind = "discrete";
      this.network = new Network(spec.network);
      this.values = doubles(spec.values);
      this.masses = doubles(spec.masses);
      this.alone = new Discrete(this.values, this.masses);
    }

    begin(x, before, isFree) { return this.network.begin(x, before, isFree); }

    law(start, x, before, isFree) {
      const ratio = this.network.ratio(start, x, before, isFree);
      let top = -Infinity;
      for (const v of ratio) if (v > top) top = v;
      return new Discrete(this.values, ratio.map((v, i) => Math.exp(v - top) * this.masses[i]));
    }

    grid(y) { return { y }; }
  }

  class MixedModel {
    constructor(spec) {
      this.kind = "mixed";
      this.labels = new DiscreteModel(spec.labels);
      this.rest = new ContinuousModel(spec.rest);
      this.reference = this.rest.reference;
      this.atoms = spec.atoms;
      this.noAtom = spec.no_atom;
      this.alone = new Mixed(this.atoms, this.atomMasses(this.labels.alone), this.rest.alone);
    }

    atomMasses(law) { return Array.from(law.masses).filter((_, i) => i !== this.noAtom); }

    begin(x, before, isFree) {
      return [this.labels.begin(x, before, isFree), this.rest.begin(x, before, isFree)];
    }

    law([labels, rest], x, before, isFree) {
      const masses = this.atomMasses(this.labels.law(labels, x, before, isFree));
      return new Mixed(this.atoms, masses, this.rest.law(rest, x, before, isFree));
    }

    grid(y) { return this.rest.grid(y); }
  }

  const MODELS = { continuous: ContinuousModel, discrete: DiscreteModel, mixed: MixedModel };

  return { build: (spec) => new MODELS[spec.kind](spec), floats, doubles, last, clip };
})();
