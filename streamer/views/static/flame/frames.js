// The frames of a tree as flat arrays, by level: place, width, colour's key, search, and ways between them.
// No drawing, no document. A frame is a number; 0 is the root, −1 none.

function hashOf(text, seed = 0x811c9dc5) {  // FNV-1a
  let hash = seed;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

export class Frames {
  constructor(answer) {
    Object.assign(this, answer);
    this.count = answer.parent.length;
    this.depths = answer.levels.length - 1;
    this.compares = "base" in answer;
    this.whole = answer.total[0] || 1;
    this.baseWhole = this.compares ? answer.base[0] || 1 : 1;
    const n = this.count;
    [this.x, this.width, this.delta] = [new Float64Array(n), new Float64Array(n), new Float64Array(n)];
    [this.first, this.children] = [new Int32Array(n), new Int32Array(n)];
    [this.depth, this.hash] = [new Int32Array(n), new Uint32Array(n)];
    const free = new Float64Array(n);  // where the next child of a frame begins
    const names = answer.names.map((name) => hashOf(name));
    for (let i = 0; i < n; i++) {
      const up = answer.parent[i];
      const share = answer.total[i] / this.whole;
      const before = this.compares ? answer.base[i] / this.baseWhole : share;
      this.width[i] = this.compares ? (share + before) / 2 : share;
      this.delta[i] = share - before;
      this.hash[i] = hashOf(`${answer.bci[i]}`, up < 0 ? names[answer.name[i]] : this.hash[up] ^ names[answer.name[i]]);
      if (up < 0) continue;
      this.x[i] = free[up];
      free[up] += this.width[i];
      free[i] = this.x[i];
      this.depth[i] = this.depth[up] + 1;
      if (!this.children[up]++) this.first[up] = i;
    }
    this.nameHash = names;
  }

  label(i) {
    if (this.parent[i] < 0) return this.root;
    const name = this.names[this.name[i]];
    return this.bci[i] >= 0 ? `${name} @${this.bci[i]}` : name;
  }

  share(i) { return this.total[i] / this.whole; }
  doubt(i) { return this.compares || !this.total[i] ? 0 : this.suspect[i] / this.total[i]; }

  // In links: the context, whatever else is in the window.
  id(i) { return this.hash[i].toString(16); }
  find(id) { return id ? this.hash.indexOf(parseInt(id, 16)) : 0; }

  path(i) {
    const out = [];
    for (let at = i; at >= 0; at = this.parent[at]) out.push(at);
    return out.reverse();
  }

  below(i) { return Array.from({length: this.children[i]}, (_, k) => this.first[i] + k); }

  heaviest(i) {
    return this.below(i).reduce((best, k) => (best < 0 || this.width[k] > this.width[best] ? k : best), -1);
  }

  // The frame beside it, of the same depth; −1 at the end.
  beside(i, step) {
    const level = this.depth[i], k = i + step;
    return k >= this.levels[level] && k < this.levels[level + 1] ? k : -1;
  }

  // The first frame of a depth that ends behind `x`.
  from(level, x) {
    let [low, high] = [this.levels[level], this.levels[level + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.x[middle] + this.width[middle] > x) high = middle; else low = middle + 1;
    }
    return low;
  }

  hit(level, x) {
    if (level < 0 || level >= this.depths) return -1;
    const i = this.from(level, x);
    return i < this.levels[level + 1] && this.x[i] <= x ? i : -1;
  }

  // Names with the text in them: which frames, how many, and their share, one within another counted once.
  search(text) {
    if (!text) return null;
    const wanted = text.toLowerCase();
    const named = this.names.map((name) => name.toLowerCase().includes(wanted));
    const [hit, within] = [new Uint8Array(this.count), new Uint8Array(this.count)];
    let [count, share] = [0, 0];
    for (let i = 1; i < this.count; i++) {
      hit[i] = named[this.name[i]];
      const above = within[this.parent[i]];
      within[i] = above | hit[i];
      count += hit[i];
      if (hit[i] && !above) share += this.total[i] / this.whole;
    }
    return {hit, count, share};
  }
}
