"use strict";
const plan = JSON.parse(document.getElementById("data").textContent);
const COLORS = ["--a", "--b", "--c", "--d", "--e", "--f"];
const STREAM_COLORS = { compute: "--a", ici: "--b", nvlink: "--b", network: "--b", dcn: "--d", ib: "--d" };
const byId = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// -- figures -----------------------------------------------------------------------------------------------------------------

function digits(x) {
  const size = Math.abs(x);
  if (size >= 100 || Number.isInteger(x)) return Math.round(x).toLocaleString("en");
  return x.toFixed(size >= 10 ? 1 : 2);
}
function scaled(x, base, units) {
  let power = 0;
  while (Math.abs(x) >= base && power < units.length - 1) { x /= base; power += 1; }
  return `${digits(x)} ${units[power]}`.trimEnd();
}
const bytes = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const count = (n) => scaled(n, 1000, ["", "k", "M", "G", "T", "P", "E"]);
function time(s) {
  for (const [unit, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "us"]]) if (Math.abs(s) >= unit) return `${digits(s / unit)} ${name}`;
  return s === 0 ? "0 s" : `${digits(s / 1e-9)} ns`;
}
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "");
const baseName = (file) => file.slice(file.lastIndexOf("/") + 1);
const lineText = (i) => (i < 0 ? "" : `${baseName(plan.lines[i][0])}:${plan.lines[i][1]}`);
const anchor = (i) => `line-${i}`;

// -- elements ----------------------------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && name !== "role") made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
function drawing(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function lineLink(i) {
  if (i < 0) return "";
  return element("a", { href: `#${anchor(i)}`, className: "line", title: plan.lines[i].join(":") }, lineText(i));
}
function showTip(event, text) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
}

/* A table that can be sorted by its heads, searched, and shown in full. Each column: title, value for sorting, cell, number, long. */
function table(where, columns, rows, name, first = 20) {
  const holder = byId(where);
  if (!rows.length) { holder.append(element("p", { className: "lead" }, "None.")); return; }
  let sorted = null, rising = false, wanted = "", all = false;
  const words = rows.map((row) => columns.map((c) => String(c.text ? c.text(row) : c.value(row))).join(" ").toLowerCase());
  const search = element("input", { type: "search", placeholder: `Search ${name}`, ariaLabel: `Search ${name}` });
  const told = element("span");
  const more = element("button", { type: "button" });
  const head = element("tr"), body = element("tbody");
  columns.forEach((c, i) => {
    const button = element("button", { type: "button", onclick: () => { rising = sorted === i ? !rising : !c.number; sorted = i; fill(); } }, c.title);
    head.append(element("th", { className: c.number ? "number" : "", scope: "col" }, button));
  });
  function fill() {
    let shown = rows.map((row, i) => [row, i]).filter(([, i]) => words[i].includes(wanted));
    if (sorted !== null) {
      const { value } = columns[sorted], way = rising ? 1 : -1;
      shown.sort(([a], [b]) => { const x = value(a), y = value(b); return way * (x < y ? -1 : x > y ? 1 : 0); });
    }
    [...head.children].forEach((th, i) => { if (i === sorted) th.ariaSort = rising ? "ascending" : "descending"; else th.removeAttribute("aria-sort"); });
    const found = shown.length;
    if (!all) shown = shown.slice(0, first);
    body.replaceChildren(...shown.map(([row]) => element("tr", {}, ...columns.map((c) =>
      element("td", { className: [c.number ? "number" : "", c.long ? "long" : "", c.code ? "code" : ""].join(" ").trim() }, ...[c.cell(row)].flat())))));
    told.textContent = found === rows.length ? `${rows.length.toLocaleString("en")} rows` : `${found} of ${rows.length} rows`;
    more.hidden = found <= first;
    more.textContent = all ? "Show fewer" : "Show all";
  }
  search.oninput = () => { wanted = search.value.toLowerCase(); fill(); };
  more.onclick = () => { all = !all; fill(); };
  holder.append(element("div", { className: "tools" }, search, told, more),
    element("div", { className: "scroll" }, element("table", {}, element("thead", {}, head), body)));
  fill();
}
const bar = (part, whole) => element("span", { className: "bar", style: `width:${whole ? Math.max(1, (60 * part) / whole) : 0}px` });

// -- head --------------------------------------------------------------------------------------------------------------------

function showHead() {
  const mesh = plan.mesh.map(([name, size]) => `${name}=${size}`).join(" ");
  byId("where").textContent = `${plan.name} on ${plan.machine}: ${plan.devices.toLocaleString("en")} x ${plan.chip}${mesh ? `, mesh ${mesh}` : ""}`;
  const title = byId("verdict");
  title.textContent = plan.verdict;
  title.className = plan.fits ? "good" : "bad";
  const [low, likely, high] = plan.seconds;
  const sent = plan.traffic.reduce((sum, t) => sum + t[2], 0);
  const figures = [
    ["Peak memory", bytes(plan.peak), `of ${bytes(plan.capacity)} (${share(plan.peak, plan.capacity)})`],
    ["Step", time(likely), `${time(low)} to ${time(high)}`],
    ["MFU", `${Math.round(100 * plan.mfu)} %`, `${count(plan.flops)}FLOP per device`],
    ["Sent", bytes(sent), "per device and step"],
    ["Arguments", bytes(plan.arguments), plan.aliased ? `${bytes(plan.aliased)} donated` : "none donated"],
    ["Calls", plan.calls.toLocaleString("en"), "in the planned run"],
  ];
  byId("figures").append(...figures.map(([name, value, note]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, note)))));
  for (const section of document.querySelectorAll("main > section")) {
    if (!section.hidden) byId("nav").append(element("a", { href: `#${section.id}` }, section.querySelector("h2").textContent));
  }
}

// -- memory ------------------------------------------------------------------------------------------------------------------

function showMemory() {
  byId("memory-lead").textContent = `Bytes in use on one device over the step; at the peak ${bytes(plan.peak)}, of which arguments take ` +
    `${bytes(plan.arguments)}, temporaries ${bytes(plan.temporaries)}.`;
  drawMemory();
  table("memory-table", [
    { title: "bytes", number: true, value: (b) => b[2] * b[3], text: (b) => bytes(b[2] * b[3]), cell: (b) => [bytes(b[2] * b[3]), bar(b[2] * b[3], plan.peak)] },
    { title: "of the peak", number: true, value: (b) => b[2] * b[3], cell: (b) => share(b[2] * b[3], plan.peak) },
    { title: "kind", value: (b) => b[1], cell: (b) => b[1] },
    { title: "value", long: true, value: (b) => b[0], cell: (b) => (b[3] > 1 ? `${b[0]} x${b[3]}` : b[0]) },
    { title: "per device", code: true, value: (b) => b[4], cell: (b) => b[4] },
    { title: "split over", value: (b) => spec(b[5]), cell: (b) => spec(b[5]) },
    { title: "line", value: (b) => lineText(b[7]), cell: (b) => lineLink(b[7]) },
  ], plan.buffers, "buffers");
}
const spec = (dims) => (dims.some((axes) => axes.length) ? dims.map((axes) => (axes.length ? axes.join(",") : "-")).join(" · ") : "");

function drawMemory() {
  const points = plan.profile;
  const figure = byId("memory-chart");
  if (points.length < 2) { figure.hidden = true; return; }
  const width = Math.max(320, figure.clientWidth - 24), height = 240, left = 70, right = 12, top = 22, bottom = 26;
  const end = points[points.length - 1][0] || 1;
  const most = Math.max(plan.peak, plan.capacity <= 2.5 * plan.peak ? plan.capacity : 0) * 1.06;
  const x = (t) => left + ((width - left - right) * t) / end, y = (n) => height - bottom - ((height - top - bottom) * n) / most;
  const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Memory in use over the step" });
  for (let i = 0; i <= 4; i += 1) {
    const n = (most / 1.06) * (i / 4);
    svg.append(drawing("line", { class: "axis", x1: left, x2: width - right, y1: y(n), y2: y(n) }), drawing("text", { x: left - 8, y: y(n) + 4, "text-anchor": "end" }, bytes(n)));
  }
  const ticks = width < 500 ? 2 : 4;
  for (let i = 0; i <= ticks; i += 1) {
    svg.append(drawing("text", { x: x((end * i) / ticks), y: height - 8, "text-anchor": i === 0 ? "start" : i === ticks ? "end" : "middle" }, time((end * i) / ticks)));
  }
  let path = `M${x(points[0][0])},${y(points[0][1])}`;
  for (const [t, n] of points.slice(1)) path += `H${x(t).toFixed(1)}V${y(n).toFixed(1)}`;
  svg.append(drawing("path", { class: "area", d: `${path}V${y(0)}H${left}Z` }), drawing("path", { class: "curve", d: path }));
  if (plan.capacity <= most) {
    svg.append(drawing("line", { class: "limit", x1: left, x2: width - right, y1: y(plan.capacity), y2: y(plan.capacity) }),
      drawing("text", { class: "limit-text", x: width - right, y: y(plan.capacity) - 5, "text-anchor": "end" }, `the device's ${bytes(plan.capacity)}`));
  }
  const highest = points.reduce((a, b) => (b[1] > a[1] ? b : a));
  svg.append(drawing("circle", { class: "peak", cx: x(highest[0]), cy: y(highest[1]), r: 4 }));
  svg.onmousemove = (event) => {
    const t = ((event.clientX - svg.getBoundingClientRect().left - left) / (width - left - right)) * end;
    const at = points.filter((p) => p[0] <= t).pop();
    showTip(event, at && t >= 0 && t <= end ? `${time(t)}\n${bytes(at[1])} in use` : "");
  };
  svg.onmouseleave = () => { byId("tip").hidden = true; };
  figure.replaceChildren(svg);
}

// -- time --------------------------------------------------------------------------------------------------------------------

function showTime() {
  const [low, likely, high] = plan.seconds;
  byId("time-lead").textContent = `${time(likely)} a step, between ${time(low)} and ${time(high)}${plan.bound ? `; bound by ${plan.bound}` : ""}.`;
  const whole = plan.shares.reduce((sum, [, s]) => sum + s, 0);
  if (whole) {
    const named = (cause) => cause.replace("collective:", "collectives over ");
    const stack = element("div", { className: "stack", role: "img", ariaLabel: "Shares of the critical path" });
    const legend = element("ul", { className: "legend" });
    plan.shares.forEach(([cause, s], i) => {
      const paint = `background:var(${COLORS[i % COLORS.length]})`;
      stack.append(element("span", { style: `${paint};width:${(100 * s) / whole}%`, title: `${named(cause)} ${time(s)}` }));
      legend.append(element("li", {}, element("i", { style: paint }), `${named(cause)} ${time(s)}, ${share(s, whole)}`));
    });
    byId("shares").append(stack, legend);
  }
  showLanes();
  table("time-table", [
    { title: "takes", number: true, value: (t) => t[2], text: (t) => time(t[2]), cell: (t) => [time(t[2]), bar(t[2], likely)] },
    { title: "of the step", number: true, value: (t) => t[2], cell: (t) => share(t[2], likely) },
    { title: "times", number: true, value: (t) => t[4], cell: (t) => t[4].toLocaleString("en") },
    { title: "op", long: true, value: (t) => t[0], cell: (t) => t[0] },
    { title: "runs on", value: (t) => t[1], cell: (t) => t[1] },
    { title: "bound by", value: (t) => t[8], cell: (t) => t[8] },
    { title: "FLOP", number: true, value: (t) => t[5], cell: (t) => (t[5] ? count(t[5]) : "") },
    { title: "memory", number: true, value: (t) => t[6], cell: (t) => (t[6] ? bytes(t[6]) : "") },
    { title: "sent", number: true, value: (t) => t[7], cell: (t) => (t[7] ? bytes(t[7]) : "") },
    { title: "line", value: (t) => lineText(t[9]), cell: (t) => lineLink(t[9]) },
  ], plan.ops, "ops");
}

/* The schedule as lanes, one a stream. A loop is one bar; a click, or Enter on the bar in the middle, opens its body. */
function showLanes() {
  const figure = byId("lanes");
  const trail = [{ label: "step", seconds: plan.seconds[1], tasks: plan.tasks }];
  const LANE = 34, AXIS = 22, NAME = 74;
  const canvas = element("canvas", { tabIndex: 0 });
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Schedule. Arrow keys move, plus and minus zoom, Enter opens the loop in the middle, Escape leaves it.");
  figure.append(element("div", { className: "tools" }, "Wheel or + and - zoom, drag or arrow keys move; click on a loop to open it, Escape to leave."), canvas);
  let from = 0, to = 1, width = 0;
  const view = () => trail[trail.length - 1];
  const length = () => Math.max(view().seconds, ...view().tasks.slice(-50).map((t) => t[2] + t[3])) || 1;
  const streams = () => plan.streams.map((_, i) => i).filter((i) => view().tasks.some((t) => t[1] === i));
  const px = (t) => NAME + ((t - from) / (to - from)) * (width - NAME);
  const at = (x) => from + ((x - NAME) / (width - NAME)) * (to - from);

  function open(body, label) {
    trail.push({ label, seconds: plan.bodies[body][0], tasks: plan.bodies[body][1] });
    reset();
  }
  function reset() {
    from = 0; to = length();
    byId("lanes-path").replaceChildren(...trail.map((v, i) => element("button", { type: "button", onclick: () => { trail.length = i + 1; reset(); } }, `${i ? "› " : ""}${v.label} (${time(v.seconds)})`)));
    draw();
  }
  function clamp() {
    const all = length(), span = Math.min(Math.max(to - from, all * 1e-6), all);
    from = Math.min(Math.max(0, from), all - span);
    to = from + span;
  }
  function zoom(center, factor) {
    const span = (to - from) * factor;
    from = center - ((center - from) / (to - from)) * span;
    to = from + span;
    clamp(); draw();
  }
  function draw() {
    const shown = streams(), ratio = devicePixelRatio || 1;
    width = Math.max(280, figure.clientWidth - 26);
    const height = Math.max(1, shown.length) * LANE + AXIS;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = color("--faint");
    shown.forEach((s, lane) => pen.fillText(plan.streams[s], 0, lane * LANE + LANE / 2));
    const ticks = width < 500 ? 2 : 5;
    for (let i = 0; i <= ticks; i += 1) {
      pen.textAlign = i === 0 ? "left" : i === ticks ? "right" : "center";
      pen.fillText(time(from + ((to - from) * i) / ticks), px(from + ((to - from) * i) / ticks), height - AXIS / 2);
    }
    pen.textAlign = "left";
    pen.save();
    pen.beginPath(); pen.rect(NAME, 0, width - NAME, height - AXIS); pen.clip();
    for (const [label, stream, start, seconds, , trips, body, , critical] of view().tasks) {
      if (start > to || start + seconds < from) continue;
      const x = px(start), w = Math.max(0.5, px(start + seconds) - x), y = shown.indexOf(stream) * LANE + 5;
      pen.globalAlpha = critical ? 1 : 0.55;
      pen.fillStyle = color(body >= 0 ? "--c" : STREAM_COLORS[plan.streams[stream]] || "--e");
      pen.fillRect(x, y, Math.max(w - 0.5, 0.5), LANE - 10);
      pen.globalAlpha = 1;
      const text = body >= 0 ? `${plan.labels[label]} x${trips}` : plan.labels[label];
      if (w > 46 && pen.measureText(text).width < w - 8) { pen.fillStyle = color("--card"); pen.fillText(text, Math.max(x, NAME) + 4, y + (LANE - 10) / 2); }
    }
    pen.restore();
  }
  function taskAt(event) {
    const box = canvas.getBoundingClientRect(), t = at(event.clientX - box.left), lane = Math.floor((event.clientY - box.top) / LANE);
    const stream = streams()[lane], near = (to - from) / (width - NAME);
    return view().tasks.find((task) => task[1] === stream && task[2] - near <= t && t <= task[2] + task[3] + near);
  }
  let drag = null;
  canvas.onmousedown = (event) => { drag = { x: event.clientX, from, to, moved: false }; };
  canvas.onmousemove = (event) => {
    if (drag) {
      const moved = ((drag.x - event.clientX) / (width - NAME)) * (drag.to - drag.from);
      drag.moved ||= Math.abs(drag.x - event.clientX) > 3;
      from = drag.from + moved; to = drag.to + moved;
      clamp(); draw();
      return;
    }
    const task = taskAt(event);
    showTip(event, task ? [plan.labels[task[0]], `${time(task[3])} from ${time(task[2])}${task[5] > 1 ? `, ${task[5]} trips` : ""}`,
      task[7] && `bound by ${task[7]}`, lineText(task[4])].filter(Boolean).join("\n") : "");
  };
  canvas.onmouseup = (event) => {
    const task = drag && !drag.moved ? taskAt(event) : null;
    drag = null;
    if (task && task[6] >= 0) open(task[6], plan.labels[task[0]]);
  };
  canvas.onmouseleave = () => { drag = null; byId("tip").hidden = true; };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(at(event.clientX - canvas.getBoundingClientRect().left), event.deltaY > 0 ? 1.25 : 0.8);
  }, { passive: false });
  canvas.onkeydown = (event) => {
    const middle = (from + to) / 2, step = (to - from) / 8;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const moved = event.key === "ArrowLeft" ? -step : step;
      from += moved; to += moved;
      clamp(); draw();
    } else if (event.key === "+" || event.key === "=") zoom(middle, 0.8);
    else if (event.key === "-") zoom(middle, 1.25);
    else if (event.key === "Enter") {
      const task = view().tasks.find((t) => t[6] >= 0 && t[2] <= middle && middle <= t[2] + t[3]);
      if (task) open(task[6], plan.labels[task[0]]);
    } else if (event.key === "Escape" && trail.length > 1) { trail.pop(); reset(); } else return;
    event.preventDefault();
  };
  if (plan.left_out) figure.append(element("p", { className: "lead" }, `The ${plan.left_out.toLocaleString("en")} shortest tasks are not drawn.`));
  redraws.push(draw);
  reset();
}

// -- traffic, advice, source, layouts ----------------------------------------------------------------------------------------

function showTraffic() {
  const sent = plan.traffic.reduce((sum, t) => sum + t[2], 0);
  const inserted = plan.traffic.reduce((sum, t) => sum + (t[6] ? t[2] : 0), 0);
  byId("traffic-lead").textContent = `A device sends ${bytes(sent)} a step, ${bytes(inserted)} of it in collectives that the partitioner inserted.`;
  table("traffic-table", [
    { title: "sent", number: true, value: (t) => t[2], text: (t) => bytes(t[2]), cell: (t) => [bytes(t[2]), bar(t[2], sent)] },
    { title: "times", number: true, value: (t) => t[3] ?? 0, cell: (t) => (t[3] === null ? "?" : t[3].toLocaleString("en")) },
    { title: "takes", number: true, value: (t) => t[9], cell: (t) => (t[9] ? time(t[9]) : "") },
    { title: "collective", value: (t) => t[0], cell: (t) => t[0] },
    { title: "axes", value: (t) => t[1].join(), cell: (t) => t[1].join(", ") },
    { title: "network", value: (t) => t[8], cell: (t) => t[8] },
    { title: "value", code: true, value: (t) => t[4], cell: (t) => t[4] },
    { title: "cause", value: (t) => (t[6] ? t[5] : "written"), cell: (t) => (t[6] ? `inserted for ${t[5]}` : "written") },
    { title: "line", value: (t) => lineText(t[7]), cell: (t) => lineLink(t[7]) },
  ], plan.traffic, "collectives");
}
function showAdvice() {
  byId("advice-list").append(...plan.advice.map(([change, effect, line]) => element("li", {}, `${change}: ${effect} `, lineLink(line))));
  byId("notes-list").append(...plan.notes.map((note) => element("li", {}, note)));
}
function showSource() {
  const costs = new Map(plan.costs.map((c) => [plan.lines[c[0]].join(":"), c]));
  byId("source-files").append(...plan.sources.map(([file, rows], i) => {
    let before = 0;
    const body = element("tbody");
    for (const [number, text] of rows) {
      const cost = costs.get(`${file}:${number}`);
      const cells = cost ? [cost[1] ? time(cost[1]) : "", cost[4] ? bytes(cost[4]) : "", cost[5] ? bytes(cost[5]) : ""] : ["", "", ""];
      body.append(element("tr", { className: [cost ? "hot" : "", before && number > before + 1 ? "gap" : ""].join(" ").trim(), id: cost ? anchor(cost[0]) : "" },
        element("td", { className: "no" }, String(number)), ...cells.map((c) => element("td", { className: "number" }, c)), element("td", { className: "text code" }, text)));
      before = number;
    }
    const head = element("tr", {}, ...["line", "takes", "sent", "at the peak", ""].map((t, j) => element("th", { className: j < 4 ? "number" : "", scope: "col" }, t)));
    return element("details", { open: i < 3 }, element("summary", { className: "code" }, file),
      element("div", { className: "scroll" }, element("table", { className: "source" }, element("thead", {}, head), body)));
  }));
}
function showLayouts() {
  const sizes = new Map(plan.mesh);
  const ways = (axes) => axes.reduce((n, a) => n * (sizes.get(a) || 1), 1);
  const total = plan.mesh.reduce((n, [, s]) => n * s, 1);
  byId("layouts-lead").textContent = "How each argument lies over the mesh: one cell is the part that a device holds; the number below says how many devices hold the same part.";
  byId("layouts-list").append(...plan.parameters.map(([name, , nbytes, , type, dims, shape]) => {
    const parts = dims.reduce((n, axes) => n * ways(axes), 1);
    const split = dims.map((axes, i) => [ways(axes), i, axes]).filter(([n]) => n > 1).sort((a, b) => b[0] - a[0]).slice(0, 2).sort((a, b) => a[1] - b[1]);
    const rows = split.length === 2 ? split[0] : null, columns = split.length ? split[split.length - 1] : null;
    const text = dims.map((axes, i) => `${shape[i]}${axes.length ? ` over ${axes.join(" x ")}` : ""}`).join(", ");
    return element("div", { className: "layout" },
      element("div", {}, element("p", { className: "code" }, name), element("p", { className: "faint" }, `[${text}]`),
        element("p", { className: "faint" }, `${type}, ${bytes(nbytes)} per device; each part on ${Math.round(total / parts).toLocaleString("en")} of ${total.toLocaleString("en")} devices`)),
      element("div", {}, layoutDrawing(rows, columns)));
  }));
}
function layoutDrawing(rows, columns) {
  const MOST = 16, width = 168, height = rows ? 84 : 40;
  const across = Math.min(columns ? columns[0] : 1, MOST), down = Math.min(rows ? rows[0] : 1, MOST / 2);
  const svg = drawing("svg", { width: width + 60, height: height + 20, role: "img", "aria-label": "Parts of the array" });
  for (let i = 0; i < down; i += 1) {
    for (let j = 0; j < across; j += 1) {
      svg.append(drawing("rect", { x: (j * width) / across + 0.5, y: (i * height) / down + 0.5, width: width / across - 1, height: height / down - 1, rx: 1,
        fill: color(COLORS[(i + j) % 2 ? 0 : 5]), opacity: 0.35 + 0.5 * ((i * across + j) / (down * across)) }));
    }
  }
  const told = ([n, , axes]) => `${axes.join("x")} ${n}${n > MOST ? " (16 drawn)" : ""}`;
  if (columns) svg.append(drawing("text", { x: 0, y: height + 15 }, told(columns)));
  else svg.append(drawing("text", { x: 0, y: height + 15 }, "whole on every device"));
  if (rows) svg.append(drawing("text", { x: width + 5, y: height / 2 + 4 }, `${rows[2].join("x")} ${rows[0]}`));
  return svg;
}

const redraws = [drawMemory];
for (const [id, empty] of [["advice", !plan.advice.length], ["notes", !plan.notes.length], ["layouts", !plan.parameters.length],
  ["traffic", plan.devices === 1], ["source", !plan.sources.length]]) byId(id).hidden = empty;
showHead(); showMemory(); showTime(); showTraffic(); showAdvice(); showSource(); showLayouts();
let waiting = 0;
const redraw = () => { clearTimeout(waiting); waiting = setTimeout(() => redraws.forEach((f) => f()), 80); };
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { redraw(); byId("layouts-list").replaceChildren(); showLayouts(); });
