const ROW = 20; // px, a row of frames
const NARROWEST = 0.5; // px; what is narrower is not drawn by itself
const LABELLED = 26; // px; what is narrower has no label
const PADDING = 5; // px, left and right of a label
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif';

// Draws the part of a tree that can be seen. A scene is {zoom, flame, search, colours, width, height, top, bottom}:
// `search` is null or {matched: by face, within: by node}; `top` and `bottom` are the edges of the window, in px on a
// paper of `height` px.
class Painter {
  constructor(canvas, tree, faces) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.tree = tree;
    this.faces = faces;
    this.widths = new Float32Array(faces.name.length); // of the names, px; 0: not measured yet
  }

  paint(scene) {
    this.scene = scene;
    this.scale = scene.width / this.tree.total[scene.zoom];
    this.runs = []; // by depth: [left, right, found] of neighbours that are too narrow
    this.#prepare();
    for (let node = 0; node < this.tree.count; ) node = this.#paintNode(node);
    for (const depth in this.runs) this.#paintRun(depth);
  }

  // [left, right] of a node in px, cut to the window.
  span(node) {
    const { tree, scale, scene } = this;
    const left = (tree.start[node] - tree.start[scene.zoom]) * scale;
    return [Math.max(left, 0), Math.min(left + tree.total[node] * scale, scene.width)];
  }

  rowTop(depth) {
    return this.scene.flame ? this.scene.height - (depth + 1) * ROW : depth * ROW;
  }

  #prepare() {
    const { canvas, context, scene } = this;
    const ratio = window.devicePixelRatio;
    const height = scene.bottom - scene.top;
    canvas.style.width = `${scene.width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(scene.width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = scene.colours.paper;
    context.fillRect(0, 0, scene.width, height);
    context.font = FONT;
    context.textBaseline = "middle";
  }

  // Returns the node to go on with: the next one, or the one after the subtree when nothing of it can be seen.
  #paintNode(node) {
    const { tree, scene } = this;
    const depth = tree.depth[node];
    const [left, right] = this.span(node);
    if (right < 0 || left > scene.width) return tree.end[node];
    if (right - left < NARROWEST) {
      this.#extendRun(depth, left, right, scene.search?.within[node]);
      return tree.end[node];
    }
    const top = this.rowTop(depth) - scene.top;
    const beyond = scene.flame ? top < -ROW : top > scene.bottom - scene.top;
    if (beyond) return tree.end[node];
    if (top > -ROW && top < scene.bottom - scene.top) this.#paintFrame(node, left, right, top);
    return node + 1;
  }

  #paintFrame(node, left, right, top) {
    const { context, faces, scene } = this;
    const face = this.tree.face[node];
    const hit = scene.search?.matched[face];
    const width = right - left;
    const dim = (scene.search && !hit) || this.tree.depth[node] < this.tree.depth[scene.zoom];
    context.globalAlpha = dim ? 0.35 : 1;
    context.fillStyle = hit ? scene.colours.match : scene.colours.fills[faces.fill[face]][faces.shade[face]];
    this.#fill(left, right, top, width > 4 ? 1 : 0);
    if (width < LABELLED) return;
    context.globalAlpha = dim ? 0.7 : 1;
    context.fillStyle = dim ? scene.colours.text : scene.colours.ink;
    context.fillText(this.#fitted(face, width - 2 * PADDING), left + PADDING, top + ROW / 2);
  }

  // The name, cut so that it is not wider than `room` px.
  #fitted(face, room) {
    const name = this.faces.name[face];
    const width = (this.widths[face] ||= this.context.measureText(name).width);
    if (width <= room) return name;
    let length = Math.floor((name.length * room) / width);
    while (length > 1 && this.context.measureText(`${name.slice(0, length)}…`).width > room) length--;
    return length > 1 ? `${name.slice(0, length)}…` : "";
  }

  #extendRun(depth, left, right, found) {
    const run = this.runs[depth];
    if (run && run[2] === found && left - run[1] < 0.01) {
      run[1] = right;
      return;
    }
    if (run) this.#paintRun(depth);
    this.runs[depth] = [left, right, found];
  }

  // Neighbours that are too narrow one by one are one block, so that they do not look like self time, and so that
  // what the search finds in them can be seen.
  #paintRun(depth) {
    const [left, right, found] = this.runs[depth];
    if (right - left < NARROWEST) return;
    const { context, scene } = this;
    context.globalAlpha = scene.search && !found ? 0.35 : 1;
    context.fillStyle = found ? scene.colours.match : scene.colours.narrow;
    this.#fill(left, right, this.rowTop(depth) - scene.top, 0);
  }

  // Edges lie on whole dots: sharp, and several times faster than blended ones.
  #fill(left, right, top, gap) {
    const ratio = window.devicePixelRatio;
    const from = Math.round(left * ratio);
    const to = Math.max(Math.round(right * ratio) - gap, from + 1);
    this.context.fillRect(from / ratio, top, (to - from) / ratio, ROW - 1);
  }
}
