// Control messages between the ranks of an MPI world: that a rank stops and why, which ranks it waits for (asked when a
// deadline has passed), and the key-value store's values where there is no PMIx. Pure: encodes and decodes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "comm/inquiry.h"

namespace ms::comm {

inline constexpr std::size_t kMaxControlBytes = 64 << 10;

// Encodes an error with all its fields; texts are truncated to keep the message below kMaxControlBytes.
std::string stop_message(const Error& error);

struct PublishedValue {
  std::string key;
  std::string value;
};
// Encodes a value within the limits of Store.
std::string value_message(const std::string& key, const std::string& value);

// Asks a rank about the operation that others wait for it in.
struct Question {
  int group = kNoGroup;
  std::uint64_t sequence = 0;
  std::int64_t old_ms = 0;  // waits that are younger are recent
};
std::string question_message(const Question& question);

struct Answer {
  Question question;
  WaitReport report;
};
// Encodes an answer; texts are truncated so that Inquiry::kMostWaits waits fit in kMaxControlBytes.
std::string answer_message(const Answer& answer);

using ControlMessage = std::variant<Error, PublishedValue, Question, Answer>;
// Decodes a control message; nullopt if it is malformed.
std::optional<ControlMessage> parse_control(std::string_view text);

}  // namespace ms::comm
