//! A file of tests that no `mod` names would never run and never fail.

#[test]
fn every_file_of_tests_is_part_of_the_binary() {
    let named = include_str!("../runner.rs");
    let mut files = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runner")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.strip_suffix(".rs").expect("only Rust files in here");
        assert!(
            named.contains(&format!("    mod {stem};\n")),
            "runner.rs does not name {stem}"
        );
        files += 1;
    }
    assert_eq!(files, named.matches("    mod ").count());
}
