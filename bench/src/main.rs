//! Side-by-side benchmarks, all on the data of one seeded generator.

#[cfg_attr(not(test), expect(dead_code, reason = "used by the benches"))]
mod generate;
#[cfg_attr(not(test), expect(dead_code, reason = "used by the benches"))]
mod words;

fn main() {}
