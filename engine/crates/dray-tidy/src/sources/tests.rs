use super::*;

#[test]
fn long_files_are_found_and_tests_at_the_end_are_not_counted() {
    let code = "let x = 1;\n".repeat(LINES_MAX);
    let tests = format!(
        "#[cfg(test)]\nmod tests {{\n{}}}\n",
        "    x();\n".repeat(100)
    );
    assert_eq!(check_length("a.rs", &code, true, &[]), None);
    assert_eq!(
        check_length("a.rs", &format!("{code}{tests}"), true, &[]),
        None
    );
    assert!(check_length("a.py", &format!("{code}{tests}"), false, &[]).is_some());
    assert!(check_length("a.rs", &format!("{code}x\n"), true, &[]).is_some());
    assert_eq!(
        check_length("x/tests/a.rs", &format!("{code}x\n"), true, &[]),
        None
    );
    assert_eq!(
        check_length("x/test_a.py", &format!("{code}x\n"), false, &[]),
        None
    );
    assert!(check_length("x/test_a.py", &code.repeat(2), false, &[]).is_some());
    assert!(check_length("a.rs", &format!("{tests}{code}"), true, &[]).is_some());
    let many_tests = tests.replace("    x();\n", &"    x();\n".repeat(10));
    assert!(check_length("a.rs", &format!("{code}{many_tests}"), true, &[]).is_some());
}

#[test]
fn the_list_of_long_files_must_be_needed() {
    let long = [LongFile {
        path: "a.rs",
        reason: "one table",
    }];
    let text = "x\n".repeat(LINES_MAX + 1);
    assert_eq!(check_length("a.rs", &text, true, &long), None);
    assert!(check_long_list(&long, |_| Some(text.clone())).is_empty());
    assert_eq!(check_long_list(&long, |_| Some("x\n".into())).len(), 1);
    assert_eq!(check_long_list(&long, |_| None).len(), 1);
    let unreasoned = [LongFile {
        path: "a.rs",
        reason: " ",
    }];
    assert_eq!(
        check_long_list(&unreasoned, |_| Some(text.clone())).len(),
        1
    );
}

#[test]
fn wide_lines_are_found_by_characters() {
    let fits = "é".repeat(COLUMNS_MAX);
    assert_eq!(check_width("a.rs", &format!("{fits}\n")), []);
    assert_eq!(
        check_width("a.rs", &format!("\n{fits}x\n"))[0].place,
        "a.rs:2"
    );
    assert_eq!(check_width("a.rs", &format!("// https://{fits}")), []);
}

#[test]
fn unsafe_without_a_reason_is_found() {
    let bare = "fn f() {\n    unsafe { g() }\n}\n";
    assert_eq!(check_unsafe("a.rs", bare)[0].place, "a.rs:2");
    assert_eq!(check_unsafe("a.rs", "unsafe impl Send for X {}\n").len(), 1);
    let far = "// SAFETY: about something else.\nlet x = 1;\nlet y = unsafe { g() };\n";
    assert_eq!(check_unsafe("a.rs", far).len(), 1);
    let in_a_string = "let s = \"// SAFETY: no\"; let y = unsafe { g() };\n";
    assert_eq!(check_unsafe("a.rs", in_a_string).len(), 1);
}

#[test]
fn unsafe_with_a_reason_passes() {
    let sources = [
        "// SAFETY: g has no demands.\nlet y = unsafe { g() };\n",
        "// SAFETY: two lines\n// of reason.\nlet y =\n    unsafe { g() };\n",
        "let y = unsafe { g() }; // SAFETY: g has no demands.\n",
        "// SAFETY: X is plain data.\n#[rustfmt::skip]\nunsafe impl Send for X {}\n",
        "/// # Safety\n/// The caller must.\nunsafe fn f() {}\n",
        "// unsafe { in a comment }\n#[unsafe(no_mangle)]\nfn f() {}\n",
    ];
    for source in sources {
        assert_eq!(check_unsafe("a.rs", source), [], "{source}");
    }
}

#[test]
fn markers_need_an_issue() {
    let marker = concat!("TO", "DO");
    assert_eq!(
        check_markers("a.rs", &format!("x\n// {marker}: later\n"))[0].place,
        "a.rs:2"
    );
    assert_eq!(
        check_markers("a.rs", &format!("# {marker}(me): later\n")).len(),
        1
    );
    assert_eq!(
        check_markers("a.rs", &format!("# {marker}(#): later\n")).len(),
        1
    );
    assert_eq!(
        check_markers("a.rs", &format!("// {marker}(#12): later\n")),
        []
    );
    assert_eq!(
        check_markers("a.rs", &format!("let X{marker} = 1; // MY_{marker}\n")),
        []
    );
}

#[test]
fn modules_have_one_style() {
    assert_eq!(check_module("src/a.rs", "mod b;\n"), []);
    assert_eq!(check_module("src/a/mod.rs", "").len(), 1);
    assert_eq!(check_module("src/a_tests.rs", "").len(), 1);
    let attribute = "#[path = \"b_tests.rs\"]\nmod tests;\n";
    assert_eq!(check_module("src/a.rs", attribute).len(), 1);
    let tests = |lines| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(lines));
    assert_eq!(check_module("src/a.rs", &tests(INLINE_TESTS_MAX - 3)), []);
    assert_eq!(check_module("src/a.rs", &tests(INLINE_TESTS_MAX)).len(), 1);
}
