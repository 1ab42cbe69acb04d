//! Links the command at a fixed address, as programs in Go are. Otherwise the loader writes a megabyte of pointers in each of
//! the three processes of a waiting candidate. These pages cannot be shared, and the kernel must free them at each exec. That
//! is a third of the memory, and 0.3 ms of each hand-over.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name| std::env::var(name).unwrap_or_default();
    // A program without shared libraries has another form, which this would break.
    let is_static = var("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if var("CARGO_CFG_TARGET_OS") == "linux" && var("CARGO_CFG_TARGET_ENV") == "gnu" && !is_static {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
