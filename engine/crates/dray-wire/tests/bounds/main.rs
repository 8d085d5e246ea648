//! Every bound is reached: what is just within it is taken, what is just over it is refused by name,
//! by the sender and by the reader.

mod blocks;
mod common;
mod limits;
mod refusals;
