#include "data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>

#include "base/error.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

struct CharacterRange {
  char32_t first, last;
};
// Characters between two of these stay where they are, too.
constexpr CharacterRange kLater[] = {
    {0x558, 0x558},     {0x58b, 0x58c},     {0x5c8, 0x5c9},     {0x7fd, 0x7fd},     {0x897, 0x8d3},
    {0x9fe, 0x9fe},     {0xafa, 0xaff},     {0xb53, 0xb55},     {0xc04, 0xc3c},     {0xcf3, 0xd00},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x180f, 0x180f},   {0x1abf, 0x1af0},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0x209d, 0x209f},
    {0x32ff, 0x32ff},   {0xa7f1, 0xa7f4},   {0xa82c, 0xa82c},   {0xa8ff, 0xa8ff},   {0xab69, 0xab69},
    {0x105c9, 0x107bf}, {0x10d24, 0x10f85}, {0x11070, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11383, 0x113e2},
    {0x1145e, 0x1145e}, {0x1182c, 0x11b67}, {0x11d31, 0x11f5a}, {0x13440, 0x13455}, {0x1611e, 0x1612f},
    {0x16d68, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16ff1}, {0x1b123, 0x1b126}, {0x1ccd6, 0x1d128},
    {0x1d250, 0x1d281}, {0x1d6a6, 0x1d6a6}, {0x1df95, 0x1dfff}, {0x1e030, 0x1e6f5}, {0x1f16c, 0x1f16c},
    {0x1fbf0, 0x1fbf9}};
// Nonspacing marks that Unicode 8 does not have, in addition to those.
constexpr CharacterRange kMarksOfUnicode9[] = {
    {0x8d4, 0x8e1},     {0x1885, 0x1886},   {0x1dfb, 0x1dfb},   {0xa8c5, 0xa8c5},   {0xa9bd, 0xa9bd},
    {0x1123e, 0x1123e}, {0x11438, 0x11446}, {0x11c30, 0x11cb6}, {0x1e000, 0x1e02a}, {0x1e944, 0x1e94a}};
// Marks of Unicode 16 and 17, which utf8proc may not know and which belong to the grapheme before them.
constexpr CharacterRange kLaterExtends[] = {
    {0x897, 0x897},     {0x1acf, 0x1add},   {0x1ae0, 0x1aeb},   {0x10d69, 0x10d6d}, {0x10efa, 0x10efc},
    {0x113b8, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113ca}, {0x113cc, 0x113d0},
    {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x11b60, 0x11b67}, {0x11f5a, 0x11f5a}, {0x1611e, 0x1612f},
    {0x1e5ee, 0x1e5ef}, {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5}};
// Format characters that Unicode 8 does not have.
constexpr CharacterRange kLaterFormats[] = {{0x890, 0x891}, {0x8e2, 0x8e2}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}};
constexpr CharacterRange kChinese[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
                                       {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};

// Capital letters of Unicode 16 and 17, which utf8proc may not know.
struct LaterCapitals {
  char32_t first, last, lower;
};
constexpr LaterCapitals kLaterCapitals[] = {
    {0x1c89, 0x1c89, 0x1c8a},    {0xa7cb, 0xa7cb, 0x264},    {0xa7cc, 0xa7cc, 0xa7cd}, {0xa7ce, 0xa7ce, 0xa7cf},
    {0xa7d2, 0xa7d2, 0xa7d3},    {0xa7d4, 0xa7d4, 0xa7d5},   {0xa7da, 0xa7da, 0xa7db}, {0xa7dc, 0xa7dc, 0x19b},
    {0x10d50, 0x10d65, 0x10d70}, {0x16ea0, 0x16eb8, 0x16ebb}};

template <std::size_t kSize>
bool is_in(char32_t c, const CharacterRange (&ranges)[kSize]) {
  if (c < ranges[0].first) return false;
  const CharacterRange* const range =
      std::partition_point(std::begin(ranges), std::end(ranges), [&](const CharacterRange& r) { return r.last < c; });
  return range != std::end(ranges) && range->first <= c;
}

// Whether the character is a mark, a composition or a compatibility character that Unicode 9 does not have.
bool is_later(char32_t c) { return is_in(c, kLater); }

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool composes(NormalForm form) { return form == NormalForm::c || form == NormalForm::kc; }

// Whether the character stays as it is, whatever stands beside it. In form C, below U+0300 all do, where no mark
// follows.
bool is_stable(char32_t c, NormalForm form) {
  if (c < (form == NormalForm::c ? 0x300 : 0xa0)) return true;
  if (c >= 0x3400 && c < 0xa000) return true;  // Chinese
  // Hangul has no table: vowels and finals are composed, and syllables decomposed.
  if (composes(form) ? c >= 0x1160 && c < 0x1200 : c >= 0xac00 && c < 0xd7a4) return false;
  const utf8proc_property_t* const p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX && p->comb_index == UINT16_MAX;
}

bool has_form(std::string_view text, NormalForm form) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_stable(c.value, form)) return false;
    at += c.bytes;
  }
  return true;
}

void append_form(std::string& storage, std::string_view text, NormalForm form) {
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }  // utf8proc's manual asks for it
  };
  if (has_form(text, form)) {
    storage += text;
    return;
  }
  utf8proc_uint8_t* made = nullptr;
  int options = UTF8PROC_STABLE | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == NormalForm::kc || form == NormalForm::kd) options |= UTF8PROC_COMPAT;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(made);
  if (bytes == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  MS_ASSERT(bytes >= 0, "the text is UTF-8: {}", utf8proc_errmsg(bytes));
  storage.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

}  // namespace

std::string_view normalize_form(std::string_view text, NormalForm form, std::string& storage) {
  if (has_form(text, form)) return text;
  storage.clear();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    // Nothing composes across the end of a line; utf8proc needs several times the memory of what it gets at once.
    if (c.value == '\n' || is_later(c.value)) {
      append_form(storage, text.substr(begin, at - begin), form);
      storage += text.substr(at, c.bytes);
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  append_form(storage, text.substr(begin), form);
  return storage;
}

std::size_t grapheme_end(std::string_view text, std::size_t at) {
  utf8proc_int32_t state = 0;
  const auto known_at = [&](std::size_t byte) {
    CodePoint c = code_point_at(text, byte);
    if (is_in(c.value, kLaterExtends)) c.value = 0x301;  // a mark, too
    return c;
  };
  CodePoint c = known_at(at);
  for (at += c.bytes; at < text.size();) {
    const CodePoint next = known_at(at);
    // Below U+0300 only CR LF is a grapheme of two.
    const bool is_low = c.value < 0x300 && next.value < 0x300 && c.value != '\r';
    if (is_low || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                                   static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    at += next.bytes;
    c = next;
  }
  return at;
}

void lower_case(char32_t c, std::string& result) {
  if (c == 0x130) {  // the only one that becomes two
    result += "i\xcc\x87";
    return;
  }
  const auto* const later = std::ranges::find_if(
      kLaterCapitals, [&](const LaterCapitals& range) { return range.first <= c && c <= range.last; });
  append_utf8(result, later != std::end(kLaterCapitals)
                          ? later->lower + (c - later->first)
                          : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void without_marks(char32_t c, std::string& result) {
  const utf8proc_category_t kind = category(c);
  const bool is_mark = kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ME ||
                       c == 0x1cf2 || c == 0x1cf3;  // two were marks
  if (!is_mark || is_later(c)) append_utf8(result, c);
}

void without_nonspacing_marks(char32_t c, std::string& result) {
  const bool is_mark = category(c) == UTF8PROC_CATEGORY_MN || c == 0x1734 || c == 0x1171e;  // two were nonspacing
  if (!is_mark || is_later(c) || is_in(c, kMarksOfUnicode9)) append_utf8(result, c);
}

void clean(char32_t c, std::string& result) {
  if (is_white_space(c) && c != 0x0b && c != 0x0c && c != 0x85) {
    result += ' ';
    return;
  }
  const utf8proc_category_t kind = category(c);
  const bool is_control =
      kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO || c == 0xfffd;
  if (!is_control || is_in(c, kLaterFormats)) append_utf8(result, c);
}

void spaced_chinese(char32_t c, std::string& result) {
  const bool is_chinese = is_in(c, kChinese);
  if (is_chinese) result += ' ';
  append_utf8(result, c);
  if (is_chinese) result += ' ';
}

}  // namespace ms::data
