//! Knobs: their descriptions, and their values in a configuration.

use super::*;

const INT: IntKnob = IntKnob { id: "some.int", description: "A number.", default: 3, min: 2, max: 5 };
const TEXT: TextKnob = TextKnob { id: "some.text", description: "A text.", max_length: 4 };
const CHOICE: ChoiceKnob =
    ChoiceKnob { id: "some.choice", description: "A word.", default: "on", valid: &["off", "on", "always"] };

fn int(value: i64) -> KnobValue {
    KnobValue::Int(value)
}

fn text(value: &str) -> KnobValue {
    KnobValue::String(value.into())
}

/// Configuration with these settings.
fn config(settings: &[(&str, KnobValue)]) -> EngineConfig {
    let knobs = settings.iter().map(|(id, value)| (id.to_string(), value.clone())).collect();
    EngineConfig { engine_id: 1, knobs }
}

/// Holds what a knob reads of one setting against the value, or the error behind the knob's id.
fn assert_reads<T: PartialEq + std::fmt::Debug>(
    id: &str,
    value: KnobValue,
    got: Result<Option<T>, Error>,
    want: Result<T, &str>,
) {
    let want = want.map(Some).map_err(|message| Error::bad_param(format!("knob {id}: expected {message}")));
    assert_eq!(got, want, "{value:?}");
}

/// A number has to be within its bounds, which are themselves allowed.
#[test]
fn numbers_are_read_within_their_bounds() {
    for (value, want) in [
        (int(2), Ok(2)),
        (int(4), Ok(4)),
        (int(5), Ok(5)),
        (int(1), Err("2 to 5, got 1")),
        (int(6), Err("2 to 5, got 6")),
        (int(i64::MIN), Err("2 to 5, got -9223372036854775808")),
        (KnobValue::Float(3.0), Err("a whole number, got Float(3.0)")),
        (text("3"), Err("a whole number, got String(\"3\")")),
    ] {
        assert_reads(INT.id, value.clone(), INT.read(&config(&[(INT.id, value)])), want);
    }
}

/// The limit of a text is in bytes, as the host's is, and itself allowed.
#[test]
fn texts_are_read_up_to_their_limit() {
    for (value, want) in [
        ("", Ok("")),
        ("abc", Ok("abc")),
        ("éé", Ok("éé")),
        ("abcde", Err("at most 4 bytes, got 5")),
        ("ééé", Err("at most 4 bytes, got 6")),
    ] {
        assert_reads(TEXT.id, text(value), TEXT.read(&config(&[(TEXT.id, text(value))])), want);
    }
    assert_reads(TEXT.id, int(7), TEXT.read(&config(&[(TEXT.id, int(7))])), Err("text, got Int(7)"));
}

/// A word has to be one of those that are allowed, to the letter; a foreign one is shown in part.
#[test]
fn words_are_read_if_they_are_allowed() {
    let long = format!("one of off, on, always, got \"{}\"…", "x".repeat(80));
    for (value, want) in [
        (text("off"), Ok("off")),
        (text("always"), Ok("always")),
        (text("On"), Err("one of off, on, always, got \"On\"")),
        (text(""), Err("one of off, on, always, got \"\"")),
        (text(&"x".repeat(200)), Err(&long[..])),
        (int(1), Err("one of off, on, always, got Int(1)")),
    ] {
        assert_reads(CHOICE.id, value.clone(), CHOICE.read(&config(&[(CHOICE.id, value)])), want);
    }
}

/// A knob that is not set reads as nothing, whatever others are; of several settings the last one holds, even if an
/// earlier one is wrong.
#[test]
fn the_last_setting_of_a_knob_holds() {
    for settings in [&[][..], &[("some.other", int(99))], &[("some.int.more", int(4)), ("some", text("on"))]] {
        let config = config(settings);
        assert_eq!(INT.read(&config), Ok(None));
        assert_eq!(TEXT.read(&config), Ok(None));
        assert_eq!(CHOICE.read(&config), Ok(None));
    }
    let several = config(&[
        (INT.id, int(99)),
        (CHOICE.id, text("off")),
        (INT.id, int(4)),
        (TEXT.id, text("abc")),
        (CHOICE.id, text("on")),
        ("some.other", int(5)),
    ]);
    assert_eq!(INT.read(&several), Ok(Some(4)));
    assert_eq!(TEXT.read(&several), Ok(Some("abc")));
    assert_eq!(CHOICE.read(&several), Ok(Some("on")));
}

/// A host that keeps to the description gets no error: the described defaults and limits are those that are read.
#[test]
fn descriptions_have_the_limits_that_hold() {
    let (int, text, choice) = (INT.describe(), TEXT.describe(), CHOICE.describe());
    for (knob, id, description) in
        [(&int, INT.id, "A number."), (&text, TEXT.id, "A text."), (&choice, CHOICE.id, "A word.")]
    {
        assert_eq!((&knob.id[..], &knob.description[..], knob.deprecated), (id, description, false));
    }
    assert_eq!(INT.read(&config(&[(INT.id, int.default)])), Ok(Some(INT.default)));
    assert_eq!(TEXT.read(&config(&[(TEXT.id, text.default)])), Ok(Some("")), "no text");
    assert_eq!(CHOICE.read(&config(&[(CHOICE.id, choice.default)])), Ok(Some(CHOICE.default)));

    assert_eq!(int.constraint, Some(KnobConstraint::Int { min: 2, max: 5, step: 1, valid: vec![] }));
    assert_eq!(text.constraint, Some(KnobConstraint::String { max_length: 4, valid: vec![] }));
    let Some(KnobConstraint::String { max_length, valid }) = choice.constraint else {
        panic!("expected words, got {:?}", choice.constraint)
    };
    assert_eq!(valid, CHOICE.valid);
    assert_eq!(max_length, 6, "the longest word is \"always\"");
}

/// Foreign text is escaped and cut by characters, with a sign that it was.
#[test]
fn foreign_text_is_quoted_and_cut() {
    for (text, want) in [
        (String::new(), "\"\"".to_string()),
        ("a\n\"".into(), "\"a\\n\\\"\"".into()),
        ("é".repeat(80), format!("\"{}\"", "é".repeat(80))),
        ("é".repeat(81), format!("\"{}\"…", "é".repeat(80))),
    ] {
        assert_eq!(shortened(&text), want);
    }
}

/// Tensors that are left out lose their token; other knobs, and text that is no list of tokens, stay as they are.
#[test]
fn constants_are_left_out_by_tensor() {
    for (text, want) in [("", ""), ("1=a,2=b,-3=c", "1=a,-3=c"), ("2=b", ""), ("22=b,x=2,2", "22=b,x=2,2")] {
        let knob = |id: &str, text: &str| (id.to_string(), KnobValue::String(text.into()));
        let config = |text| EngineConfig { engine_id: 1, knobs: vec![knob(CONSTANTS.id, text), knob("other", "2=b")] };
        assert_eq!(without_constants(&config(text), |uid| uid == TensorUid(2)), config(want), "{text:?}");
    }
}
