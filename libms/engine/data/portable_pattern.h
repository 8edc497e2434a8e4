// Patterns of Hugging Face's tokenizers for PCRE2. tokenizers matches with Oniguruma; only what means the same in both
// is accepted, or is rewritten until it does.
#pragma once

#include <string>
#include <string_view>

namespace ms::data {

// The pattern for PCRE2, compiled with UTF and UCP, that matches what Oniguruma 6.9.10 (Unicode 16) matches with
// `pattern`. Accepted are literals, alternatives, groups ( (?: (?i: (?= (?! , classes of characters, ranges, \s and
// \p{..}, and the quantifiers * + ? {n} {n,} {n,m}. Error("data.tokenizer", user) names what is not, and where.
std::string portable_pattern(std::string_view pattern);

}  // namespace ms::data
