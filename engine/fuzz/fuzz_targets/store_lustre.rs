//! Parses arbitrary bytes as a Lustre layout. No input may cause a panic. Parsed stripes must be
//! the same after encoding and decoding.
#![no_main]

use dray_store::lustre::{LustreLayout, Stripes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(layout) = LustreLayout::decode(data)
        && let Some(stripes) = Stripes::of_layout(&layout)
    {
        let again = LustreLayout::decode(&stripes.encode()).expect("an encoded layout is valid");
        assert_eq!(Stripes::of_layout(&again), Some(stripes.clone()));
        assert_eq!(stripes.to_string().parse(), Ok(stripes));
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(stripes) = text.parse::<Stripes>()
    {
        assert!(LustreLayout::decode(&stripes.encode()).is_ok());
    }
});
