//! Every bound is tested from both sides: values just within it are accepted, and both sender and
//! reader refuse values just over it, naming the field.

mod blocks;
mod common;
mod limits;
mod refusals;
