// The rate of a transfer over time, with a summary in words for readers who do not see the chart.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, rate } from "./format";
import { text } from "./strings";
import { isInterrupted, type Transfer } from "./types";

/** One point in a second: half an hour. */
const POINTS_MAX = 1800;
const SAMPLE_MS = 1000;
/** The line does not join two samples that are further apart. */
const GAP_SECONDS = 5;
const HEIGHT = 170;
/** Minimum width of the time axis. Otherwise the first points would be milliseconds apart. */
const WINDOW_SECONDS = 60;

/** Distances of the rate axis: powers of two, so that the labels are whole numbers. */
const STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);
/** Minimum distances of two labels, in pixels. */
const SPACE_X = 90;
const SPACE_Y = 36;

/** Times in seconds, and the rate at each time; `null` while no session moves data. */
type Points = [number[], (number | null)[]];

/** Returns the number of gaps after the first rate. */
function gapsOf(rates: readonly (number | null)[]): number {
  const first = rates.findIndex((each) => each !== null);
  if (first < 0) return 0;
  return rates.filter((each, at) => at > first && each === null && rates[at - 1] !== null).length;
}

/** Adds a sample. A browser calls a page in the background rarely, which also makes a gap. */
function add([times, rates]: Points, sample: number | null): void {
  const now = Date.now() / 1000;
  const last = times.at(-1);
  if (last !== undefined && now - last > GAP_SECONDS) {
    times.push(now - GAP_SECONDS / 2);
    rates.push(null);
  }
  times.push(now);
  rates.push(sample);
  while (times.length > POINTS_MAX) {
    times.shift();
    rates.shift();
  }
}

/** Returns the rate to draw now. The line has a gap during an interruption, a pause and a wait. */
function sampleOf(of: Transfer): number | null {
  if (of.state !== "active" || isInterrupted(of)) return null;
  // The smoothed rate of a silent transfer would only decay slowly.
  return of.silent_seconds === null ? of.rate.now : 0;
}

function options(width: number): uPlot.Options {
  const color = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  const axis = { stroke: color, grid: { stroke: `${color}22` }, ticks: { stroke: `${color}22` } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    axes: [
      { ...axis, space: SPACE_X, values: (_, splits) => splits.map(clock) },
      {
        ...axis,
        size: 90,
        space: SPACE_Y,
        incrs: STEPS,
        values: (_, splits) => splits.map((each) => rate(each)),
      },
    ],
    scales: {
      x: {
        range: (_, first, last) => {
          const end = last ?? Date.now() / 1000;
          return [Math.min(first ?? end, end - WINDOW_SECONDS), end];
        },
      },
      y: { range: (_, __, highest) => [0, Math.max(1, (highest ?? 0) * 1.1)] },
    },
    series: [{}, { stroke: accent, width: 2, spanGaps: false }],
  };
}

export function RateChart({ transfer }: { transfer: Transfer }): JSX.Element | null {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const points = useRef<Points>([[], []]);
  const newest = useRef(transfer);
  newest.current = transfer;
  const [seen, setSeen] = useState({ highest: 0, gaps: 0 });
  const now = sampleOf(transfer);

  // A sample each second, and not one for each event: without events, the time passes too.
  useEffect(() => {
    const timer = window.setInterval(() => {
      add(points.current, sampleOf(newest.current));
      const [, rates] = points.current;
      const highest = Math.max(0, ...rates.map((each) => each ?? 0));
      setSeen({ highest, gaps: gapsOf(rates) });
      plot.current?.setData(points.current);
    }, SAMPLE_MS);
    return () => window.clearInterval(timer);
  }, []);

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    plot.current = new uPlot(options(element.clientWidth), points.current, element);
    const observer = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);

  return (
    <figure>
      <div ref={box} class="chart" aria-hidden="true" />
      <figcaption>
        {text.show.chart}: {text.show.chartSummary(rate(now), rate(Math.max(seen.highest, now ?? 0)), seen.gaps)}
      </figcaption>
    </figure>
  );
}
