//! Compiles a library for programs of any age: against the functions of glibc 2.17 (2012), by the clang inside PyPI's
//! `ziglang`. Where that is not there, by the C compiler of the machine, for programs with its C library or a newer one.

use std::env;
use std::path::Path;
use std::process::Command;

const FLAGS: [&str; 11] = [
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-builtin", // or malloc and memset would become calloc
    "-fasynchronous-unwind-tables",
    "-fomit-frame-pointer",
    "-Wall",
    "-Wextra",
    "-Werror",
];

/// Makes `library` of one source file.
pub fn compile(source: &Path, library: &Path) {
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-env-changed=CC");
    let command = compiler();
    let status = Command::new(&command[0])
        .args(&command[1..])
        .args(FLAGS)
        .arg(source)
        .arg("-o")
        .arg(library)
        .arg("-ldl")
        .status()
        .expect("the compiler runs");
    assert!(status.success(), "{} does not compile", source.display());
}

fn compiler() -> Vec<String> {
    let python = env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".into());
    let zig = [&python, "-m", "ziglang"].map(str::to_owned);
    if super::runs(&[&zig[..], &["version".into()]].concat()) {
        let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo says what it builds for");
        let target = format!("{architecture}-linux-gnu.2.17");
        return [
            &zig[..],
            &["cc".into(), "-target".into(), target, "-fno-sanitize=all".into()],
        ]
        .concat();
    }
    vec![env::var("CC").unwrap_or_else(|_| "cc".into())]
}
