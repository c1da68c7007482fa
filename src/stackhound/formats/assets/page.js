const HINT = "Click or Enter zooms · arrow keys move · / searches · Esc resets";
const TYPING_PAUSE_MS = 400; // after it, what was typed goes into the address

const profile = JSON.parse(element("profile").textContent);
const faces = profile.faces;
faces.name = faces.name.map((index) => profile.strings[index]);
const tree = new Tree(profile.nodes);
const painter = new Painter(element("canvas"), tree, faces);
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
const printing = window.matchMedia("print");

// What is shown, as the address keeps it: the zoomed node, the search, which end is up, the theme ("": the system's).
let state = { zoom: 0, search: "", flame: false, theme: "" };
let found = null; // what the search finds: {matched: by face, within: by node whether its subtree has one}
let selected = -1;
let kept = location.hash.slice(1); // the part of the address that `state` is kept in
let keepTimer = 0;

function element(id) {
  return document.getElementById(id);
}

// An element with text and children. Text is never read as HTML.
function make(tag, text, ...children) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.append(...children);
  return made;
}

// ---- The state and the address

function stateFromAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  const zoom = Number(query.get("zoom"));
  const theme = query.get("theme");
  return {
    zoom: Number.isInteger(zoom) && zoom > 0 && zoom < tree.count ? zoom : 0,
    search: query.get("search") ?? "",
    flame: query.get("root") === "bottom",
    theme: theme === "light" || theme === "dark" ? theme : "",
  };
}

function keepInAddress() {
  const query = new URLSearchParams();
  if (state.zoom) query.set("zoom", state.zoom);
  if (state.search) query.set("search", state.search);
  if (state.flame) query.set("root", "bottom");
  if (state.theme) query.set("theme", state.theme);
  if (query.toString() === kept) return;
  kept = query.toString();
  location.hash = kept;
}

// Back, forward, or another address typed; not what `keepInAddress` wrote.
function followAddress() {
  if (location.hash.slice(1) === kept) return;
  kept = location.hash.slice(1);
  show(stateFromAddress());
}

function keepSoon() {
  clearTimeout(keepTimer);
  keepTimer = setTimeout(keepInAddress, TYPING_PAUSE_MS);
}

function change(patch) {
  clearTimeout(keepTimer);
  show({ ...state, ...patch });
  keepInAddress();
}

function show(next) {
  const moved = next.zoom !== state.zoom || next.flame !== state.flame;
  state = next;
  showSearch();
  showTheme();
  layOut();
  if (moved) showRow(state.zoom);
  repaint();
}

function reset() {
  select(-1);
  change({ zoom: 0, search: "" });
}

// ---- The picture

function layOut() {
  const view = element("view");
  const rows = tree.maxDepth(state.zoom) + 1;
  element("paper").style.height = `${Math.max(rows * ROW, view.clientHeight)}px`;
}

function paint() {
  const view = element("view");
  const { color, backgroundColor } = getComputedStyle(document.body);
  painter.paint({
    zoom: state.zoom,
    flame: state.flame,
    search: found,
    colours: { ...colours(), ink: profile.ink, text: color, paper: backgroundColor },
    width: view.clientWidth,
    height: element("paper").offsetHeight,
    top: view.scrollTop,
    bottom: view.scrollTop + view.clientHeight,
  });
  mark(element("selection"), selected);
}

const repaint = oncePerFrame(paint);

function oncePerFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

function mark(frame, node) {
  const [left, right] = node < 0 ? [0, 0] : painter.span(node);
  frame.hidden = right <= left;
  frame.style.left = `${left}px`;
  frame.style.top = `${painter.rowTop(tree.depth[Math.max(node, 0)])}px`;
  frame.style.width = `${Math.max(right - left, 2)}px`;
  frame.style.height = `${ROW - 1}px`;
}

function showRow(node) {
  const view = element("view");
  const offset = tree.depth[node] * ROW;
  const top = state.flame ? element("paper").offsetHeight - offset - ROW : offset;
  if (top < view.scrollTop) view.scrollTop = top;
  if (top + ROW > view.scrollTop + view.clientHeight) view.scrollTop = top + ROW - view.clientHeight;
}

// ---- Around the picture

function showHeader() {
  document.title = `${profile.title} · stackhound`;
  element("title").textContent = profile.title;
  const facts = profile.facts.map(([label, text]) => make("div", "", make("dt", label), make("dd", text)));
  element("facts").replaceChildren(...facts);
}

function showSearch() {
  const field = element("search");
  const { expression, literal } = compileSearch(state.search);
  if (field.value !== state.search) field.value = state.search;
  field.classList.toggle("literal", literal);
  field.title = literal ? "Not a regular expression: searched as plain text" : "";
  const matched = faces.name.map((name) => expression.test(name));
  found = state.search ? { matched, within: tree.matchesWithin(matched) } : null;
  element("share").textContent = found ? shareText(matched) : "";
}

function shareText(matched) {
  const share = (root) => percent(tree.matchedTotal(matched, root), tree.total[root]);
  return `${share(0)} matched${state.zoom ? `, ${share(state.zoom)} of this view` : ""}`;
}

function isDark() {
  if (printing.matches) return false;
  return state.theme ? state.theme === "dark" : darkness.matches;
}

function colours() {
  return isDark() ? profile.dark : profile.light;
}

function showTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  element("theme").textContent = isDark() ? "Light" : "Dark";
  element("direction").textContent = state.flame ? "Icicle" : "Flame";
  document.querySelectorAll("#legend i").forEach((swatch) => {
    swatch.style.background = colours().fills[swatch.dataset.fill][0];
  });
}

// Only the fills that there are, each with its share of self time.
function showLegend() {
  const sums = profile.fills.map(() => 0);
  for (let node = 0; node < tree.count; node++) sums[faces.fill[tree.face[node]]] += tree.self[node];
  const items = profile.fills.flatMap((label, fill) => {
    if (!sums[fill]) return [];
    const swatch = make("i", "");
    swatch.dataset.fill = fill;
    return [make("li", "", swatch, `${label} ${percent(sums[fill], tree.total[0])}`)];
  });
  element("legend").replaceChildren(...items);
}

// ---- One frame

function describe(node) {
  const face = tree.face[node];
  const [source, object, reason] = ["source", "object", "reason"].map((column) => profile.strings[faces[column][face]]);
  const origin = [profile.fills[faces.fill[face]], object].filter(Boolean).join(" · ");
  return { name: faces.name[face], source, origin, miss: reason && `No name: ${reason}` };
}

function amountsOf(node) {
  const shares = (value) => {
    const ofView = state.zoom ? [`${percent(value, tree.total[state.zoom])} of this view`] : [];
    return [amount(value, profile.scales), `${percent(value, tree.total[0])} of all`, ...ofView];
  };
  const before = tree.before ? [["Before", ...changeSince(tree.before[node], tree.total[node])]] : [];
  return [["Total", ...shares(tree.total[node])], ["Self", ...shares(tree.self[node])], ...before];
}

// What there was, and what has come to it since.
function changeSince(before, after) {
  const sign = after < before ? "−" : "+";
  return [amount(before, profile.scales), `${sign}${amount(Math.abs(after - before), profile.scales)} since`];
}

function showTooltip(node, x, y) {
  const tip = element("tooltip");
  const { name, source, origin, miss } = describe(node);
  const rows = amountsOf(node).map((cells) => make("tr", "", ...cells.map((cell) => make("td", cell))));
  const notes = [source, origin, miss].filter(Boolean).map((note) => make("p", note));
  tip.replaceChildren(make("b", name), ...notes, make("table", "", ...rows));
  tip.hidden = false;
  tip.style.left = `${besidePointer(x, tip.offsetWidth, innerWidth)}px`;
  tip.style.top = `${besidePointer(y, tip.offsetHeight, innerHeight)}px`;
}

// Right of (below) the pointer where there is room, else left of (above) it.
function besidePointer(pointer, size, room) {
  return Math.max(8, pointer + 16 + size < room ? pointer + 16 : pointer - 12 - size);
}

function hideTooltip() {
  element("tooltip").hidden = true;
  element("hover").hidden = true;
}

function select(node) {
  selected = node;
  hideTooltip();
  element("status").textContent = node < 0 ? HINT : summary(node);
  if (node >= 0) showRow(node);
  repaint();
}

function summary(node) {
  const { name, source, miss } = describe(node);
  const amounts = amountsOf(node).map(([label, value, share]) => `${label.toLowerCase()} ${value}, ${share}`);
  return [name, ...amounts, source, miss].filter(Boolean).join(" · ");
}

// ---- Hands

function nodeUnder({ clientX, clientY }) {
  const box = element("canvas").getBoundingClientRect();
  const y = clientY - box.top + element("view").scrollTop;
  const depth = Math.floor((state.flame ? element("paper").offsetHeight - y : y) / ROW);
  const position = tree.start[state.zoom] + (clientX - box.left) / painter.scale;
  const node = depth < 0 ? -1 : tree.at(position, depth);
  return node >= 0 && tree.total[node] * painter.scale >= NARROWEST ? node : -1;
}

function onPointerMove(event) {
  if (event.pointerType === "touch") return;
  const node = nodeUnder(event);
  hideTooltip();
  if (node < 0) return;
  mark(element("hover"), node);
  showTooltip(node, event.clientX, event.clientY);
}

// A finger does not hover: its first tap selects and tells, the second one zooms.
function onClick(event) {
  const node = nodeUnder(event);
  if (node < 0) return;
  const zooms = event.pointerType !== "touch" || node === selected;
  select(node);
  if (zooms) change({ zoom: node });
  else showTooltip(node, event.clientX, event.clientY);
}

const MOVES = {
  ArrowUp: (node) => (state.flame ? inward(node) : tree.parent[node]),
  ArrowDown: (node) => (state.flame ? tree.parent[node] : inward(node)),
  ArrowLeft: (node) => tree.neighbour(node, -1, state.zoom, NARROWEST / painter.scale),
  ArrowRight: (node) => tree.neighbour(node, 1, state.zoom, NARROWEST / painter.scale),
};

// The child to the left of all, which is the largest; above the zoomed frame, the one that leads to it.
function inward(node) {
  if (tree.depth[node] < tree.depth[state.zoom]) return tree.ancestor(state.zoom, tree.depth[node] + 1);
  return tree.end[node] > node + 1 ? node + 1 : node;
}

function onKey(event) {
  const field = element("search");
  const typing = document.activeElement === field;
  if (event.key === "Escape") {
    if (typing) leaveSearch();
    else reset();
  } else if (asksForSearch(event) && !typing) {
    field.focus();
    field.select();
    event.preventDefault();
  } else if ([document.body, element("canvas")].includes(document.activeElement)) {
    onPictureKey(event);
  }
}

// A second Ctrl-F, in the field, is the browser's own.
function asksForSearch({ key, ctrlKey, metaKey }) {
  return key === "/" || (key.toLowerCase() === "f" && (ctrlKey || metaKey));
}

function onPictureKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return; // Alt-Left is the browser's "back"
  if (event.key in MOVES) select(selected < 0 ? state.zoom : MOVES[event.key](selected));
  else if (event.key === "Enter" && selected >= 0) change({ zoom: selected });
  else return;
  event.preventDefault();
}

function leaveSearch() {
  change({ search: "" });
  element("canvas").focus();
}

function onTyping() {
  show({ ...state, search: element("search").value });
  keepSoon();
}

function onResize() {
  layOut();
  repaint();
}

// Moving to a screen of another density is no resize.
function watchDensity() {
  const changed = () => {
    repaint();
    watchDensity();
  };
  window.matchMedia(`(resolution: ${devicePixelRatio}dppx)`).addEventListener("change", changed, { once: true });
}

function listen() {
  const canvas = element("canvas");
  canvas.addEventListener("pointermove", onPointerMove);
  canvas.addEventListener("pointerleave", hideTooltip);
  canvas.addEventListener("click", onClick);
  element("view").addEventListener("scroll", () => {
    hideTooltip();
    repaint();
  });
  element("search").addEventListener("input", onTyping);
  element("reset").addEventListener("click", reset);
  element("direction").addEventListener("click", () => change({ flame: !state.flame }));
  element("theme").addEventListener("click", () => change({ theme: isDark() ? "light" : "dark" }));
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", followAddress);
  darkness.addEventListener("change", () => show(state));
  printing.addEventListener("change", () => {
    show(state);
    paint(); // a printer waits for no animation frame
  });
  new ResizeObserver(onResize).observe(element("view"));
  watchDensity();
}

showHeader();
showLegend();
listen();
select(-1);
show(stateFromAddress());
