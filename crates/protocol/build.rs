//! Generates the types and calls of the interfaces from their descriptions.

fn main() {
    for description in ["src/org.gangd.v1.varlink", "src/org.gangd.auto1.varlink"] {
        varlink_generator::cargo_build(description);
    }
}
