"use strict";

// The call tree as columns in preorder, each parent's children by falling total: a subtree is the range
// [node, end[node]), and the samples of a node lie at [start[node], start[node] + total[node]) of the whole.
class Tree {
  constructor({ count, depth, face, self, before }) {
    this.count = count;
    this.depth = decodeVarints(depth, new Uint32Array(count));
    this.face = decodeVarints(face, new Uint32Array(count));
    this.self = decodeVarints(self, new Float64Array(count));
    this.before = before ? decodeVarints(before, new Float64Array(count)) : null; // totals to compare with
    this.parent = this.#parents();
    this.total = this.self.slice();
    this.end = new Uint32Array(count);
    this.#sumSubtrees();
    this.start = this.#positions();
  }

  #parents() {
    const parents = new Uint32Array(this.count);
    const latest = [];
    for (let node = 0; node < this.count; node++) {
      const depth = this.depth[node];
      parents[node] = depth > 0 ? latest[depth - 1] : 0;
      latest[depth] = node;
    }
    return parents;
  }

  #sumSubtrees() {
    const { parent, total, end } = this;
    for (let node = this.count - 1; node >= 0; node--) {
      end[node] = Math.max(end[node], node + 1);
      if (node === 0) break;
      total[parent[node]] += total[node];
      end[parent[node]] = Math.max(end[parent[node]], end[node]);
    }
  }

  #positions() {
    const start = new Float64Array(this.count);
    const next = new Float64Array(this.count); // where a node's next child begins
    for (let node = 1; node < this.count; node++) {
      const parent = this.parent[node];
      start[node] = next[node] = next[parent];
      next[parent] += this.total[node];
    }
    return start;
  }

  // The node of that depth at `position` of the whole; -1 where there is none.
  at(position, depth) {
    let node = 0;
    while (this.depth[node] < depth) {
      const stop = this.end[node];
      let child = node + 1;
      while (child < stop && this.start[child] + this.total[child] <= position) child = this.end[child];
      if (child >= stop || this.start[child] > position) return -1;
      node = child;
    }
    return node;
  }

  maxDepth(root) {
    let deepest = 0;
    for (let node = root; node < this.end[root]; node++) deepest = Math.max(deepest, this.depth[node]);
    return deepest;
  }

  // The value below `root` whose stacks contain a matched face. Below a match nothing is added, so that each
  // sample counts once.
  matchedTotal(matched, root) {
    let sum = 0;
    for (let node = root; node < this.end[root]; ) {
      const hit = matched[this.face[node]];
      if (hit) sum += this.total[node];
      node = hit ? this.end[node] : node + 1;
    }
    return sum;
  }

  ancestor(node, depth) {
    while (this.depth[node] > depth) node = this.parent[node];
    return node;
  }

  // By node, whether its subtree has a matched face.
  matchesWithin(matched) {
    const within = new Uint8Array(this.count);
    for (let node = this.count - 1; node >= 0; node--) {
      if (matched[this.face[node]]) within[node] = 1;
      if (within[node]) within[this.parent[node]] = 1;
    }
    return within;
  }

  // The nearest node of the same depth before (step -1) or after (step 1) `node` within `root` that is worth at
  // least `least`; `node` itself where there is none.
  neighbour(node, step, root, least) {
    for (let other = node + step; other > root && other < this.end[root]; other += step) {
      if (this.depth[other] === this.depth[node] && this.total[other] >= least) return other;
    }
    return node;
  }
}

// Unsigned LEB128, in base64: 7 bits a byte, low bits first, the top bit set when more follow.
function decodeVarints(base64, into) {
  const bytes = atob(base64);
  let at = 0;
  for (let index = 0; index < into.length; index++) {
    let value = 0;
    let byte = 128;
    for (let scale = 1; byte & 128; scale *= 128) {
      byte = bytes.charCodeAt(at++);
      value += (byte & 127) * scale;
    }
    into[index] = value;
  }
  return into;
}

// A test for names: the regular expression, or the plain text where `pattern` is none. Case does not matter.
function compileSearch(pattern) {
  try {
    return { expression: new RegExp(pattern, "i"), literal: false };
  } catch {
    return { expression: new RegExp(pattern.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), "i"), literal: true };
  }
}
