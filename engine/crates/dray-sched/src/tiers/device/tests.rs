use super::{DeviceModel, ModelError, Sample};
use proptest::prelude::*;

fn paper() -> DeviceModel {
    DeviceModel::new(3.56e9, 3.0e9, 1.6e9, 0.08e9).expect("valid")
}

#[test]
fn the_bound_of_the_paper_is_2_14_times_the_capacity() {
    assert!((paper().admissible(1.0) - 2.142_857).abs() < 1e-6);
    let fast = DeviceModel::new(3.0, 2.0, 2.0, 0.0).expect("valid");
    assert_eq!(fast.admissible(1.0), f64::INFINITY);
}

#[test]
fn the_line_passes_through_both_ends() {
    let model = paper();
    assert_eq!(model.write_beside(0.0), 3.56e9);
    assert_eq!(model.write_beside(0.08e9), 3.56e9);
    assert_eq!(model.write_beside(1.6e9), 3.0e9);
    assert_eq!(model.write_beside(9e9), 3.0e9);
    assert!((model.write_beside(0.84e9) - 3.28e9).abs() < 1.0);
    assert_eq!(model.read_beside(0.0), 1.6e9);
    assert_eq!(model.read_beside(4e9), 0.08e9);
}

#[test]
fn invalid_bandwidths_are_refused_with_their_name() {
    let error = DeviceModel::new(3.0, f64::NAN, 1.0, 0.0).expect_err("not a number");
    assert!(matches!(
        error,
        ModelError::NotPositive {
            name: "write_min",
            ..
        }
    ));
    let error = DeviceModel::new(3.0, 2.0, 1.0, 1.5).expect_err("crossed");
    assert!(matches!(
        error,
        ModelError::MinAboveMax {
            name: "read_min",
            ..
        }
    ));
    assert!(DeviceModel::new(0.0, 2.0, 1.0, 0.0).is_err());
    assert!(DeviceModel::new(3.0, 2.0, f64::INFINITY, 0.0).is_err());
    assert!(DeviceModel::new(3.0, 2.0, 1.0, -1.0).is_err());
}

#[test]
fn samples_that_define_no_falling_line_are_refused() {
    let same = Sample {
        read: 1e9,
        write: 3e9,
    };
    for samples in [vec![], vec![same], vec![same; 5]] {
        let error = DeviceModel::fit(&samples).expect_err("no line");
        assert_eq!(
            error,
            ModelError::TooFewSamples {
                samples: samples.len()
            }
        );
    }
    let flat = [same, Sample { read: 2e9, ..same }];
    let error = DeviceModel::fit(&flat).expect_err("flat");
    assert!(matches!(error, ModelError::NotFalling { .. }));
}

proptest! {
    #[test]
    fn a_fit_finds_the_line_of_its_samples(
        write_max in 1e8..1e10f64,
        fall in 0.01..0.9f64,
        read_max in 1e8..1e10f64,
        least in 0.0..0.9f64,
        noise in 0.0..0.005f64,
    ) {
        let model = DeviceModel::new(
            write_max, write_max * (1.0 - fall), read_max, read_max * least,
        ).expect("valid");
        let samples: Vec<Sample> = (0..=10).map(|at| {
            let read = model.read_min + (read_max - model.read_min) * f64::from(at) / 10.0;
            let sign = if at % 2 == 0 { 1.0 } else { -1.0 };
            let write = model.write_beside(read) * (1.0 + sign * noise * fall);
            Sample { read, write }
        }).collect();
        let fitted = DeviceModel::fit(&samples).expect("falls");
        let close = |one: f64, other: f64| (one / other - 1.0).abs() < 0.02;
        prop_assert!(close(fitted.write_max, model.write_max));
        prop_assert!(close(fitted.write_min, model.write_min));
        prop_assert!(close(fitted.read_max, model.read_max));
        prop_assert!((fitted.read_min - model.read_min).abs() < 1e-6 * read_max);
    }

    #[test]
    fn reads_and_writes_are_inverse_along_the_line(
        part in 0.0..1.0f64,
        write_min in 1e8..1e10f64,
    ) {
        let model = DeviceModel::new(2e10, write_min, 1e10, 1e8).expect("valid");
        let read = model.read_min + part * (model.read_max - model.read_min);
        let back = model.read_beside(model.write_beside(read));
        prop_assert!((back / read - 1.0).abs() < 1e-6);
    }
}
