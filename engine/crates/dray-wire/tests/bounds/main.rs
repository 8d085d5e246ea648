//! Tests of every limit. The encoder and the decoder must accept a value at the limit. Both must
//! reject a value above the limit, with an error that contains the name of the field.

mod blocks;
mod common;
mod limits;
mod refusals;
