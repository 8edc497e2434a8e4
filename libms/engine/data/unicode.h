// Normal forms, graphemes and maps of single characters, with the results of Hugging Face's tokenizers, whose tables
// are those of several versions of Unicode. All take UTF-8. Only unicode.cpp knows utf8proc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ms::data {

// The normalization form of `text`, which is UTF-8: `text` itself where it has that form already, otherwise
// `storage`, which becomes it. The tables are those of tokenizers, Unicode 9: later marks neither move nor compose,
// and later characters are not decomposed.
enum class NormalForm { c, d, kc, kd };
std::string_view normalize_form(std::string_view text, NormalForm form, std::string& storage);

// The byte at which the grapheme that begins at byte `at` ends.
std::size_t grapheme_end(std::string_view text, std::size_t at);

// Appends what becomes of the character.
using CharacterMap = void (*)(char32_t c, std::string& result);

void lower_case(char32_t c, std::string& result);
void without_marks(char32_t c, std::string& result);             // of Unicode 9
void without_nonspacing_marks(char32_t c, std::string& result);  // of Unicode 8
void clean(char32_t c, std::string& result);                     // no control characters, all white space a blank
void spaced_chinese(char32_t c, std::string& result);            // a blank before and behind it

}  // namespace ms::data
