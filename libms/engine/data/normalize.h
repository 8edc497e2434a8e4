// Unicode normalisation of text as Hugging Face's tokenizers does it. Only normalize.cpp knows utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace ms::data {

// The normalization form C of `text`, which is UTF-8: `text` itself where it has that form already, otherwise
// `storage`, which becomes it. The tables are those of tokenizers, Unicode 9: later combining marks neither move nor
// compose.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace ms::data
