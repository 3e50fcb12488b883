//! What is measured of gangs by the BPF programs: what these programs are given, and what they report.

pub mod gauge;
