use super::{EquationForm, Pattern, Ramp, demotion_rate, even_rates, needed_rate};
use crate::tiers::device::DeviceModel;
use proptest::prelude::*;

/// Bandwidths of BBOS, section 5.3.1, in GB/s.
fn paper() -> DeviceModel {
    DeviceModel::new(3.56, 3.0, 1.6, 0.08).expect("valid")
}

fn planned(dwpp: f64) -> Ramp {
    Ramp::plan(&paper(), 1.0, dwpp, EquationForm::Text).expect("below the bound")
}

/// Largest number of bytes on the fast tier if all of DWPP is written without idle time.
fn filled(ramp: &Ramp, dwpp: f64) -> f64 {
    let steps = 20_000;
    let step = dwpp / f64::from(steps);
    let (mut used, mut most) = (0.0, 0.0f64);
    for at in 0..steps {
        let rates = ramp.rates((f64::from(at) + 0.5) * step);
        used += step * (1.0 - rates.read / rates.write);
        most = most.max(used);
    }
    most
}

#[test]
fn the_thresholds_of_the_paper_s_bandwidths() {
    let ramp = planned(1.0);
    assert_eq!(ramp.pattern, Pattern::WhenIdle);
    let ramp = planned(1.2);
    assert_eq!(ramp.pattern, Pattern::FromThreshold);
    assert!((ramp.start - 0.419_05).abs() < 1e-5, "{}", ramp.start);
    assert!((planned(1.3).start - 0.128_57).abs() < 1e-5);
    let printed = Ramp::plan(&paper(), 1.0, 1.2, EquationForm::Printed).expect("fits");
    assert!((printed.start - 0.459_35).abs() < 1e-5, "{}", printed.start);
    let ramp = planned(1.6);
    assert_eq!(ramp.pattern, Pattern::FromStart);
    assert_eq!(ramp.start, 0.0);
    assert!((ramp.full - 0.913_78).abs() < 1e-5, "{}", ramp.full);
    let ramp = planned(15.0 / 7.0);
    assert!(ramp.full < 1e-6, "{}", ramp.full);
}

#[test]
fn the_patterns_meet_at_1_344_times_the_capacity() {
    for (dwpp, pattern) in [
        (1.344_26, Pattern::FromThreshold),
        (1.344_27, Pattern::FromStart),
    ] {
        for form in [EquationForm::Text, EquationForm::Printed] {
            let ramp = Ramp::plan(&paper(), 1.0, dwpp, form).expect("fits");
            assert_eq!(ramp.pattern, pattern, "{dwpp}");
            assert!(ramp.start < 1e-4);
            assert!((ramp.full - dwpp).abs() < 1e-3);
        }
    }
}

#[test]
fn more_than_the_bound_is_refused_with_the_bound() {
    let error = Ramp::plan(&paper(), 1e12, 2.2e12, EquationForm::Text).expect_err("above");
    assert!((error.bound - 2.142_857e12).abs() < 1e7);
    assert!(error.to_string().contains("2142857142857"), "{error}");
    assert!(Ramp::plan(&paper(), 1e12, 2.142e12, EquationForm::Text).is_ok());
}

#[test]
fn the_printed_form_demotes_too_little_by_brmin_tc() {
    let printed = Ramp::plan(&paper(), 1.0, 1.2, EquationForm::Printed).expect("fits");
    let most = filled(&printed, 1.2);
    assert!((most - 1.0 - 0.08 * printed.t_c).abs() < 1e-4, "{most}");
    assert!(most > 1.01);
    assert!((filled(&planned(1.2), 1.2) - 1.0).abs() < 1e-4);
}

#[test]
fn the_period_leaves_time_for_the_rest() {
    // The applications write 1.9 S, and S is 2200 GB.
    let ramp = Ramp::plan(&paper(), 2200.0, 4180.0, EquationForm::Text).expect("fits");
    let writes = ramp.t_c + ramp.t_dd + ramp.t_ds;
    assert!((ramp.period_min() - writes - 1375.0).abs() < 1e-6);
    assert!(ramp.fits_period(3800.0));
    assert!(!ramp.fits_period(2600.0));
    // With pattern 1, all of DWPP is demoted after the writes.
    let ramp = Ramp::plan(&paper(), 2200.0, 160.0, EquationForm::Text).expect("fits");
    assert!((ramp.period_min() - 160.0 / 3.56 - 100.0).abs() < 1e-9);
}

#[test]
fn a_deadline_raises_the_rate_up_to_the_maximum() {
    assert_eq!(demotion_rate(0.5, 100.0, 200.0, 1.6), 0.5);
    assert_eq!(demotion_rate(0.0, 100.0, 200.0, 1.6), 0.5);
    assert_eq!(demotion_rate(0.7, 100.0, 10.0, 1.6), 1.6);
    assert_eq!(demotion_rate(0.7, 100.0, -1.0, 1.6), 1.6);
    assert_eq!(demotion_rate(0.7, 0.0, -1.0, 1.6), 0.7);
}

#[test]
fn versions_are_planned_for_without_the_first() {
    let largest = 80.0 / 2200.0;
    let plain = planned(1.6);
    let plan = |dwpp| Ramp::plan_versions(&paper(), 1.0, dwpp, largest, EquationForm::Text);
    assert!(plan(1.6).expect("fits").full < plain.full);
    assert_eq!(plan(1.2).expect("fits"), planned(1.2));
    assert!(plan(2.14).is_err());
    assert!(plan(2.10).is_ok());
}

#[test]
fn a_rate_is_needed_only_for_bytes_without_space() {
    let device = paper();
    assert_eq!(needed_rate(&device, 0.5, 0.0, 0.5, 0.1), 0.0);
    let exact = even_rates(&device, 0.4, 0.6).read;
    assert_eq!(needed_rate(&device, 0.5, 0.0, 0.6, 0.1), exact);
    // Moved bytes take space until the end of their demotion.
    assert_eq!(needed_rate(&device, 0.4, 0.1, 0.6, 0.1), exact);
    // A demotion that is late leaves fewer free bytes.
    assert!(needed_rate(&device, 0.4, 0.0, 0.6, 0.1) > exact);
    assert_eq!(needed_rate(&device, 0.0, 0.0, 0.6, 0.1), 1.6);
}

/// A burst of whole versions that are demoted one after the other. Sizes are parts of the capacity.
struct Burst {
    versions: u32,
    size: f64,
    /// Seconds between the end of a demotion and the first byte of the next one.
    pause: f64,
    has_feedback: bool,
}

impl Burst {
    /// Returns the most space that is taken. Writes run at Bwmin.
    fn peak(&self, device: &DeviceModel) -> f64 {
        let dwpp = f64::from(self.versions) * self.size;
        let ramp = Ramp::plan_versions(device, 1.0, dwpp, self.size, EquationForm::Text);
        let step = self.size / device.write_min / 64.0;
        let (mut dwsf, mut moved, mut freed, mut most) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
        let mut waits = 0.0;
        while dwsf < dwpp {
            dwsf = (dwsf + device.write_min * step).min(dwpp);
            most = most.max(dwsf - freed);
            let complete = (dwsf / self.size + 1e-9).floor() * self.size;
            let planned = ramp
                .as_ref()
                .map_or(device.read_max, |ramp| ramp.rates(dwsf).read);
            let (free, running) = (1.0 - (dwsf - freed), moved - freed);
            let needed = needed_rate(device, free, running, dwpp - dwsf, self.size);
            let rate = planned.max(if self.has_feedback { needed } else { 0.0 });
            if waits > 0.0 || complete <= freed {
                waits -= step;
                continue;
            }
            moved = (moved + rate * step).min(freed + self.size);
            if moved >= freed + self.size {
                freed += self.size;
                waits = self.pause;
            }
        }
        most
    }

    /// Returns the most space that a tier needs for this burst: demotions at Brmax, in whole versions.
    fn least(&self, device: &DeviceModel) -> f64 {
        let cycle = self.size / device.read_max + self.pause;
        let written = f64::from(self.versions - 1) * self.size / device.write_min;
        (f64::from(self.versions) - (written / cycle).floor()) * self.size
    }
}

/// Bandwidths of any device, in any unit.
fn devices() -> impl Strategy<Value = DeviceModel> {
    (0.5..8.0f64, 0.05..1.0f64, 0.1..8.0f64, 0.0..1.0f64).prop_map(|(write, fall, read, rise)| {
        DeviceModel::new(write, write * fall, read, read * rise).expect("valid")
    })
}

#[test]
fn without_feedback_pauses_fill_the_tier() {
    let device = paper();
    let peak = |has_feedback| {
        let size = 1.0 / 12.0;
        let pause = 0.15 * size / device.read_max;
        Burst {
            versions: 19,
            size,
            pause,
            has_feedback,
        }
        .peak(&device)
    };
    assert!(peak(false) > 1.0, "{}", peak(false));
    assert!(peak(true) <= 1.0, "{}", peak(true));
}

proptest! {
    #[test]
    fn below_the_bound_the_tier_never_overflows(device in devices(), part in 0.0..1.0f64) {
        // The admissible DWPP may be infinite, so limit it to six times the capacity.
        let dwpp = part * device.admissible(1.0).min(6.0);
        let ramp = Ramp::plan(&device, 1.0, dwpp, EquationForm::Text).expect("below the bound");
        let most = filled(&ramp, dwpp);
        prop_assert!(most <= 1.0 + 1e-3, "{} of {:?}", most, ramp);
        prop_assert!(most <= dwpp + 1e-9);
    }

    #[test]
    fn demotions_start_no_earlier_than_needed(device in devices(), part in 0.0..1.0f64) {
        let most = device.admissible(1.0).min(6.0);
        prop_assume!(most > 1.01);
        let dwpp = 1.01 + part * (most - 1.01);
        let ramp = Ramp::plan(&device, 1.0, dwpp, EquationForm::Text).expect("below the bound");
        let is_slower = device.without_excess().read_min < device.without_excess().write_max;
        prop_assume!(is_slower && ramp.full > 0.0);
        let filled = filled(&ramp, dwpp);
        prop_assert!(filled >= 1.0 - 1e-2, "{} of {:?}", filled, ramp);
    }

    #[test]
    fn rates_rise_with_dwsf_along_the_line_of_the_device(
        device in devices(),
        part in 0.0..1.0f64,
    ) {
        let dwpp = part * device.admissible(1.0).min(6.0);
        let ramp = Ramp::plan(&device, 1.0, dwpp, EquationForm::Text).expect("below the bound");
        let mut last = ramp.rates(0.0);
        for at in 1..=200 {
            let rates = ramp.rates(dwpp * f64::from(at) / 200.0);
            prop_assert!(rates.read >= last.read - 1e-9, "{:?} after {:?}", rates, last);
            prop_assert!(rates.write <= last.write + 1e-9);
            prop_assert!(rates.read <= device.read_max + 1e-9);
            if rates.read > 0.0 && device.read_max > device.read_min {
                let possible = device.write_beside(rates.read);
                prop_assert!(rates.write <= possible * (1.0 + 1e-6), "{:?} {:?}", rates, ramp);
            }
            last = rates;
        }
    }

    #[test]
    fn even_rates_fill_the_tier_exactly_at_the_end(device in devices(), part in 0.0..1.0f64) {
        let most = device.admissible(1.0).min(6.0);
        prop_assume!(device.read_max > device.read_min);
        let dwpp = 1.0 + part * (most - 1.0);
        let (mut used, mut highest, steps) = (0.0, 0.0f64, 2_000);
        let step = dwpp / f64::from(steps);
        let mut last = None;
        for at in 0..steps {
            let rates = even_rates(&device, 1.0 - used, dwpp - f64::from(at) * step);
            let before = *last.get_or_insert(rates.read);
            // The sums lose precision when few bytes remain.
            let is_early = at < steps * 9 / 10;
            prop_assert!(!is_early || (rates.read - before).abs() < 1e-6, "{} {}", at, rates.read);
            used += step * (1.0 - rates.read / rates.write);
            highest = highest.max(used);
        }
        prop_assert!((highest - 1.0).abs() < 1e-6, "{}", highest);
    }

    #[test]
    fn a_burst_of_versions_fits_where_demotions_at_brmax_would_fit(
        versions in 12u32..40,
        parts in 8.0..30.0f64,
        pause in 0.0..0.3f64,
    ) {
        let size = 1.0 / parts;
        let device = paper();
        let burst = Burst { versions, size, pause: pause * size / device.read_max, has_feedback: true };
        // Consider only bursts that leave space for two more versions. The read rate has a limit,
        // so an increase that comes late cannot free the missing space entirely.
        prop_assume!(burst.least(&device) + 2.0 * size <= 1.0);
        let peak = burst.peak(&device);
        prop_assert!(peak <= 1.0 + 1e-6, "{} of {} versions of {}", peak, versions, size);
    }

    #[test]
    fn demoted_bytes_are_the_integral_of_the_rate(device in devices(), part in 0.0..1.0f64) {
        let dwpp = part * device.admissible(1.0).min(6.0);
        let ramp = Ramp::plan(&device, 1.0, dwpp, EquationForm::Text).expect("below the bound");
        prop_assert!((ramp.demoted(dwpp) - (dwpp - 1.0).max(0.0)).abs() < 1e-9);
        let (mut demoted, steps) = (0.0, 4_000);
        let step = dwpp / f64::from(steps);
        for at in 0..steps {
            let rates = ramp.rates((f64::from(at) + 0.5) * step);
            demoted += step * rates.read / rates.write;
            let exact = ramp.demoted(f64::from(at + 1) * step);
            prop_assert!((demoted - exact).abs() < 5e-3, "{} for {}", demoted, exact);
        }
    }

    #[test]
    fn a_larger_dwpp_starts_earlier(device in devices(), one in 0.0..1.0f64, two in 0.0..1.0f64) {
        let most = device.admissible(1.0).min(6.0);
        prop_assume!(most > 1.0);
        let dwpp = |part: f64| 1.0 + part * (most - 1.0);
        let plan = |part| Ramp::plan(&device, 1.0, dwpp(part), EquationForm::Text);
        let less = plan(one.min(two)).expect("below the bound");
        let more = plan(one.max(two)).expect("below the bound");
        prop_assert!(more.start <= less.start + 1e-6);
    }
}
