// The rate of a transfer over time, with a summary in words for readers who do not see the chart.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { rate } from "./format";
import { text } from "./strings";
import type { Transfer } from "./types";

const POINTS_MAX = 1800;
const HEIGHT = 160;
/** Minimum width of the time axis. Otherwise the first points would be milliseconds apart. */
const WINDOW_SECONDS = 60;

/** Distances of the rate axis: powers of two, so that the labels are whole numbers. */
const STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

type Points = [number[], number[]];

function options(width: number): uPlot.Options {
  const color = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  const axis = { stroke: color, grid: { stroke: `${color}22` }, ticks: { stroke: `${color}22` } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    axes: [axis, { ...axis, size: 90, incrs: STEPS, values: (_, splits) => splits.map((each) => rate(each)) }],
    scales: {
      x: {
        range: (_, first, last) => {
          const end = last ?? Date.now() / 1000;
          return [Math.min(first ?? end, end - WINDOW_SECONDS), end];
        },
      },
      y: { range: (_, __, highest) => [0, Math.max(1, (highest ?? 0) * 1.1)] },
    },
    series: [{}, { stroke: accent, width: 2 }],
  };
}

export function RateChart({ transfer }: { transfer: Transfer }): JSX.Element | null {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const points = useRef<Points>([[], []]);
  const [highest, setHighest] = useState(0);
  const now = transfer.rate.now;
  // Each progress event has new counters, also when the rate stays the same.
  const sent = transfer.bytes.sent;

  useEffect(() => {
    const [times, rates] = points.current;
    if (now === null) return;
    times.push(Date.now() / 1000);
    rates.push(now);
    if (times.length > POINTS_MAX) {
      times.shift();
      rates.shift();
    }
    setHighest(Math.max(...rates));
    plot.current?.setData([times, rates]);
  }, [now, sent]);

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
        {text.show.chart}: {text.show.chartSummary(rate(now), rate(highest))}
      </figcaption>
    </figure>
  );
}
