// Conversations in JSON: objects with OpenAI's `messages` of role and content, or ShareGPT's `conversations` of from
// and value, beside which a `system` prompt may stand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/json_lines.h"

namespace ms::data {

enum class ChatRole : std::uint8_t { system, user, assistant };
std::string_view to_string(ChatRole role);

struct ChatMessage {
  ChatRole role;
  std::string content;
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

// Replaces `messages` by those of a line. nullopt: all of them are text, and one is from the assistant.
std::optional<JsonLineProblem> read_chat(std::string_view line, std::vector<ChatMessage>& messages);

}  // namespace ms::data
