//! Generates the types and calls of the interface from its description.

fn main() {
    varlink_generator::cargo_build("src/org.gangd.v1.varlink");
}
