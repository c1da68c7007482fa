//! Compiles the kernel's walker for user space.

use std::env;
use std::path::PathBuf;

fn main() {
    let stack = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../bpf/stack");
    println!("cargo:rerun-if-changed={}", stack.display());
    println!("cargo:rerun-if-changed={}", stack.join("../abi.h").display());
    let architecture = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "__TARGET_ARCH_x86",
        Ok("aarch64") => "__TARGET_ARCH_arm64",
        other => panic!("x86-64 and arm64 only, not {other:?}"),
    };
    cc::Build::new()
        .file(stack.join("host.c"))
        .define(architecture, None)
        .compile("stackhound_host");
}
