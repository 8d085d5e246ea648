//! Tests of every bound from both sides: the encoder and the decoder accept a value just within the
//! bound. Both refuse a value just over it and name the field.

mod blocks;
mod common;
mod limits;
mod refusals;
