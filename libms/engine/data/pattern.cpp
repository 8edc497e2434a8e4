#include "data/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <limits>
#include <new>
#include <string>

#include "base/error.h"
#include "base/handle.h"
#include "data/portable_pattern.h"

namespace ms::data {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10U;     // of compiled code, at first
constexpr std::size_t kMaxStackBytes = std::size_t{64} << 20U;  // and at most

struct CodeTraits {
  using Type = pcre2_code*;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type code) noexcept { pcre2_code_free(code); }
};
struct MatchDataTraits {
  using Type = pcre2_match_data*;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type data) noexcept { pcre2_match_data_free(data); }
};
struct MatchContextTraits {
  using Type = pcre2_match_context*;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type context) noexcept { pcre2_match_context_free(context); }
};
struct JitStackTraits {
  using Type = pcre2_jit_stack*;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type stack) noexcept { pcre2_jit_stack_free(stack); }
};

std::string pcre2_words(int code) {
  PCRE2_UCHAR8 words[256] = {};
  pcre2_get_error_message(code, words, sizeof words);
  return reinterpret_cast<const char*>(words);
}

PCRE2_SPTR8 units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR8>(text.data()); }

}  // namespace

struct Pattern::Code {
  Handle<CodeTraits> compiled;
  bool is_jit = false;
};

struct Pattern::Scratch::Memory {
  Handle<MatchDataTraits> data;
  Handle<MatchContextTraits> context;
  Handle<JitStackTraits> stack;
};

Pattern::Scratch::Scratch() : memory_(std::make_unique<Memory>()) {
  memory_->data.reset(pcre2_match_data_create(1, nullptr));
  memory_->context.reset(pcre2_match_context_create(nullptr));
  memory_->stack.reset(pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr));
  if (!memory_->data || !memory_->context || !memory_->stack) throw std::bad_alloc();
  pcre2_set_match_limit(memory_->context.get(), std::numeric_limits<std::uint32_t>::max());
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
}
Pattern::Scratch::Scratch(Scratch&&) noexcept = default;
Pattern::Scratch::~Scratch() = default;

Pattern::Pattern(std::string_view pattern) : code_(std::make_unique<Code>()) {
  const std::string portable = portable_pattern(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->compiled.reset(pcre2_compile(units(portable), portable.size(), PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
  if (!code_->compiled)
    throw user_error("data.tokenizer", fmt::format("'{}' is not a pattern: {}", pattern, pcre2_words(error)));
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code_->compiled.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0)
    throw user_error("data.tokenizer", fmt::format("the pattern '{}' matches the empty text", pattern));
  code_->is_jit = pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE) == 0;  // otherwise it is interpreted
}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

std::optional<Pattern::Match> Pattern::find(std::string_view text, std::size_t from, Scratch& scratch) const {
  const Scratch::Memory& memory = *scratch.memory_;
  const auto match = code_->is_jit ? pcre2_jit_match : pcre2_match;
  const std::uint32_t options = code_->is_jit ? 0 : PCRE2_NO_UTF_CHECK;
  const int count =
      match(code_->compiled.get(), units(text), text.size(), from, options, memory.data.get(), memory.context.get());
  if (count == PCRE2_ERROR_NOMATCH) return {};
  if (count < 0) throw user_error("data.tokenizer", fmt::format("the pattern does not match: {}", pcre2_words(count)));
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(memory.data.get());
  return Match{ends[0], ends[1]};
}

}  // namespace ms::data
