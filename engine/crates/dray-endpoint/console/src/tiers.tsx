// The tiers: their space, the bytes of the period against the thresholds, and their versions.

import type { JSX } from "preact";
import { useCallback } from "preact/hooks";
import type { Api } from "./api";
import { bytes, rate } from "./format";
import { useNow, usePoll } from "./hooks";
import { Bar, Cut, Fact, Failed, Name, Section, Table, When } from "./parts";
import * as strings from "./strings";
import type { Tier, Version } from "./types";

const { text } = strings;

const TIERS_SECONDS = 5;
const TIERS_MAX = 16;
const ROWS_MAX = 50;

function Space({ of }: { of: Tier }): JSX.Element {
  const whole = Math.max(of.capacity, 1);
  const words = text.site.tiers;
  const label = words.spaceLabel(bytes(of.used), bytes(of.capacity), bytes(of.watermark));
  const marks = [{ at: of.watermark / whole, title: "watermark" }];
  const kind = of.used > of.watermark ? "congested" : "";
  return (
    <>
      <Bar part={of.used / whole} label={label} kind={kind} marks={marks} />
      <span class="hint">{label}</span>
    </>
  );
}

function Period({ of }: { of: Tier }): JSX.Element {
  const whole = Math.max(of.full, of.start, of.dwsf, 1) * 1.1;
  const words = text.site.tiers;
  const label = words.periodLabel(bytes(of.dwsf), bytes(of.start), bytes(of.full));
  const marks = [
    { at: of.start / whole, title: "start" },
    { at: of.full / whole, title: "full" },
  ];
  const kind = of.dwsf > of.full ? "bad" : of.dwsf > of.start ? "congested" : "";
  return (
    <>
      <Bar part={of.dwsf / whole} label={label} kind={kind} marks={marks} />
      <span class="hint">{label}</span>
    </>
  );
}

/** True if the tier may delete the fast copy: the slow copy is durable, and nothing keeps it. */
const isVictim = ({ state, kept }: Version): boolean => state === "demoted" && kept === null;

function next(version: Version): JSX.Element | string {
  const words = text.site.tiers;
  if (version.error) return <Name of={version.error} />;
  if (version.kept) return <Name of={words.kept(version.kept)} />;
  return isVictim(version) ? words.victim : "–";
}

function Versions({ of, now }: { of: Version[]; now: number }): JSX.Element {
  const words = text.site.tiers;
  // The versions that the tier may delete come first, the one with the oldest use at the top.
  const sorted = [...of].sort(
    (a, b) => Number(isVictim(b)) - Number(isVictim(a)) || (a.used_at < b.used_at ? -1 : 1),
  );
  const rows = sorted.slice(0, ROWS_MAX).map((each) => ({
    key: `${each.application} ${each.version}`,
    cells: [
      <Name of={`${each.application} ${each.version}`} />,
      bytes(each.bytes),
      strings.version[each.state],
      <When at={each.used_at} now={now} />,
      next(each),
    ],
  }));
  return (
    <>
      <h3>{words.versions}</h3>
      {rows.length === 0 ? (
        <p>{words.noVersions}</p>
      ) : (
        <Table columns={words.columns} rows={rows} label={words.versions} numbers={[1]} />
      )}
      <Cut shown={rows.length} all={of.length} />
    </>
  );
}

function Facts({ of }: { of: Tier }): JSX.Element {
  const words = text.site.tiers;
  const expected = bytes(of.dwpp);
  return (
    <dl>
      <Fact name={words.space}>
        <Space of={of} />
      </Fact>
      <Fact name={words.period}>
        <Period of={of} />
      </Fact>
      <Fact name={words.expected}>
        {of.dwpp_max === null ? expected : words.expectedOf(expected, bytes(of.dwpp_max))}
      </Fact>
      <Fact name={words.demotions}>{rate(of.demotion_rate)}</Fact>
      {of.incoming > 0 && <Fact name={words.incoming}>{bytes(of.incoming)}</Fact>}
      {of.waiting > 0 && <Fact name={words.waiting}>{bytes(of.waiting)}</Fact>}
    </dl>
  );
}

function One({ of, now }: { of: Tier; now: number }): JSX.Element {
  const words = text.site.tiers;
  return (
    <Section title={words.heading(of.name)}>
      {of.rounds === 0 && <p>{words.unscanned}</p>}
      {of.error && (
        <p class="error">
          <Name of={of.error} />
        </p>
      )}
      {of.devices.map(
        (device) =>
          device.error && (
            <p key={device.root} class="error">
              <Name of={`${words.device(device.root)} ${device.error}`} />
            </p>
          ),
      )}
      {of.missing > 0 && <p class="error">{words.missing(bytes(of.missing))}</p>}
      <p>
        {of.is_writing ? words.writing : words.idle}{" "}
        {of.pattern ? strings.pattern[of.pattern] : of.rounds > 0 && words.tooMuch}
      </p>
      <Facts of={of} />
      <Versions of={of.versions} now={now} />
    </Section>
  );
}

export function Tiers({ api, expired }: { api: Api; expired: () => void }): JSX.Element {
  const read = useCallback(async () => {
    const names = await api.tierNames();
    return {
      tiers: await Promise.all(names.slice(0, TIERS_MAX).map((name) => api.tier(name))),
      all: names.length,
    };
  }, [api]);
  const { value, error } = usePoll(read, TIERS_SECONDS, expired);
  const now = useNow(5);
  return (
    <>
      <Failed error={error} />
      {value?.tiers.map((tier) => <One key={tier.name} of={tier} now={now} />)}
      {value && <Cut shown={value.tiers.length} all={value.all} />}
    </>
  );
}
