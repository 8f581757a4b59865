//! The library `bit`: operations on the 32 bits of a number, as in LuaJIT and Redis.
//!
//! Numbers are taken modulo 2^32, and results are signed.

use mlua::{Lua, Result, Table, Variadic};

/// The functions of the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.set("tobit", lua.create_function(|_, number: f64| Ok(bits(number)))?)?;
    table.set("bnot", lua.create_function(|_, number: f64| Ok(!bits(number)))?)?;
    table.set("bswap", lua.create_function(|_, number: f64| Ok(bits(number).swap_bytes()))?)?;
    table.set(
        "tohex",
        lua.create_function(|_, (number, digits): (f64, Option<f64>)| Ok(hex(number, digits)))?,
    )?;
    fold(lua, &table, ("band", |one, other| one & other))?;
    fold(lua, &table, ("bor", |one, other| one | other))?;
    fold(lua, &table, ("bxor", |one, other| one ^ other))?;
    shift(lua, &table, ("lshift", |number, by| number << by))?;
    shift(lua, &table, ("rshift", |number, by| ((number as u32) >> by) as i32))?;
    shift(lua, &table, ("arshift", |number, by| number >> by))?;
    shift(lua, &table, ("rol", |number, by| number.rotate_left(by)))?;
    shift(lua, &table, ("ror", |number, by| number.rotate_right(by)))?;
    Ok(table)
}

/// Adds a function of one or more numbers.
fn fold(lua: &Lua, table: &Table, (name, apply): (&'static str, fn(i32, i32) -> i32)) -> Result<()> {
    let function = move |_: &Lua, (first, rest): (f64, Variadic<f64>)| {
        Ok(rest.iter().fold(bits(first), |result, number| apply(result, bits(*number))))
    };
    table.set(name, lua.create_function(function)?)
}

/// Adds a function of a number and of a count, of which the lower five bits matter.
fn shift(lua: &Lua, table: &Table, (name, apply): (&'static str, fn(i32, u32) -> i32)) -> Result<()> {
    let function = move |_: &Lua, (number, by): (f64, f64)| Ok(apply(bits(number), bits(by) as u32 & 31));
    table.set(name, lua.create_function(function)?)
}

/// A number modulo 2^32, rounded to the nearest integer.
fn bits(number: f64) -> i32 {
    const MODULUS: f64 = 4_294_967_296.0;
    if !number.is_finite() {
        return 0;
    }
    number.round_ties_even().rem_euclid(MODULUS) as u32 as i32
}

/// As many hexadecimal digits as requested, 8 by default; capitals for a negative number.
fn hex(number: f64, digits: Option<f64>) -> String {
    let digits = digits.map_or(8, bits);
    let count = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{:08X}", bits(number)) } else { format!("{:08x}", bits(number)) };
    text[8 - count..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_modulo_the_32_bits() {
        for (number, expected) in [
            (0.0, 0),
            (-1.0, -1),
            (4_294_967_295.0, -1),
            (4_294_967_296.0, 0),
            (2.5, 2),
            (1e300, bits(1e300)),
        ] {
            assert_eq!(bits(number), expected, "{number}");
        }
        assert_eq!(bits(f64::NAN), 0);
        assert_eq!((hex(255.0, None), hex(255.0, Some(-4.0))), ("000000ff".to_owned(), "00FF".to_owned()));
    }
}
