// What ranks of an MPI world tell each other beside their data: that one stops, and why; whom they wait for, when one
// is about to stop; the values of the store where there is no PMIx. Pure: texts to values and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "comm/inquiry.h"

namespace ms::comm {

inline constexpr std::size_t kMaxControlBytes = 64 << 10;

// An error with all that it knows; its texts are cut so that the message stays below the limit.
std::string stop_message(const Error& error);

struct PublishedValue {
  std::string key;
  std::string value;
};
// Within the limits of the store.
std::string value_message(const std::string& key, const std::string& value);

// "You are waited for": in which operation.
struct Question {
  int group = kNoGroup;
  std::uint64_t sequence = 0;
};
std::string question_message(const Question& question);

struct Answer {
  Question question;
  Account account;
};
// Texts are cut, so that it stays below the limit for Inquiry::kMostWaits waits.
std::string answer_message(const Answer& answer);

using ControlMessage = std::variant<Error, PublishedValue, Question, Answer>;
// Nothing where it is none of them.
std::optional<ControlMessage> parse_control(std::string_view text);

}  // namespace ms::comm
