/** Plots as SVG, on a ground of their own, so that they read on light and dark pages. */
import type { Plot } from "./report.ts";

export interface Axis {
  readonly title: string;
  /** Whether each step is ten times the one before. */
  readonly log?: boolean;
}

export interface LinePlot {
  readonly name: string;
  readonly title: string;
  readonly x: Axis;
  readonly y: Axis;
  readonly lines: readonly {
    readonly name: string;
    readonly points: readonly (readonly [x: number, y: number])[];
  }[];
}

const WIDTH = 640;
const HEIGHT = 360;
const LEFT = 70;
const RIGHT = 150;
const TOP = 40;
const BOTTOM = 50;
const COLOURS = ["#1a7f37", "#888888", "#0969da", "#bf8700", "#cf222e", "#8250df"];

export function linePlot(plot: LinePlot): Plot {
  const points = plot.lines.flatMap((line) => line.points);
  const x = scale(
    plot.x,
    points.map(([value]) => value),
    LEFT,
    WIDTH - RIGHT,
  );
  const y = scale(
    plot.y,
    points.map(([, value]) => value),
    HEIGHT - BOTTOM,
    TOP,
  );
  const parts = [
    text(WIDTH / 2, 22, plot.title, "middle", 14),
    ...x.ticks.flatMap((tick) => [
      rule(x.at(tick), TOP, x.at(tick), HEIGHT - BOTTOM),
      text(x.at(tick), HEIGHT - BOTTOM + 16, tick.toLocaleString("en"), "middle"),
    ]),
    ...y.ticks.flatMap((tick) => [
      rule(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick)),
      text(LEFT - 6, y.at(tick) + 4, tick.toLocaleString("en"), "end"),
    ]),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, plot.x.title, "middle"),
    text(8, TOP - 6, plot.y.title, "start"),
    ...plot.lines.flatMap(({ name, points }, index) => {
      const colour = COLOURS[index % COLOURS.length]!;
      const path = points.map(([px, py]) => `${x.at(px).toFixed(1)},${y.at(py).toFixed(1)}`).join(" ");
      const legendY = TOP + 12 + index * 18;
      return [
        `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${path}"/>`,
        `<rect x="${WIDTH - RIGHT + 14}" y="${legendY - 8}" width="10" height="10" fill="${colour}"/>`,
        text(WIDTH - RIGHT + 30, legendY, name, "start"),
      ];
    }),
  ];
  const svg = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif">`,
    `<title>${plot.title}</title>`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#ffffff"/>`,
    ...parts,
    "</svg>",
    "",
  ].join("\n");
  return { name: plot.name, title: plot.title, svg };
}

interface Scale {
  readonly ticks: readonly number[];
  at(value: number): number;
}

/** From values to places between two ends. Linear ones begin at 0. */
function scale(axis: Axis, values: readonly number[], from: number, to: number): Scale {
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  if (axis.log === true) {
    const low = Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b), most)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(most)));
    return {
      ticks: Array.from({ length: high - low + 1 }, (_, nth) => 10 ** (low + nth)),
      at: (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from),
    };
  }
  const step = niceStep(most / 5);
  const steps = Math.ceil(most / step);
  return {
    ticks: Array.from({ length: steps + 1 }, (_, nth) => nth * step),
    at: (value) => from + (value / (steps * step)) * (to - from),
  };
}

/** The next 1, 2 or 5 with zeros after it. */
function niceStep(atLeast: number): number {
  const power = 10 ** Math.floor(Math.log10(atLeast));
  return ([1, 2, 5].find((digit) => digit * power >= atLeast) ?? 10) * power;
}

function text(x: number, y: number, content: string, anchor: string, size = 11): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${size}" text-anchor="${anchor}" fill="#333333">${content}</text>`;
}

function rule(x1: number, y1: number, x2: number, y2: number): string {
  const [a, b, c, d] = [x1, y1, x2, y2].map((value) => value.toFixed(1));
  return `<line x1="${a}" y1="${b}" x2="${c}" y2="${d}" stroke="#dddddd"/>`;
}
