// Conversations in JSON: objects with a list of `messages` or `conversations`, each of role and content, as OpenAI's
// are, or of from and value, as ShareGPT's; a `system` prompt may stand beside the list. A content is a text, or a list
// of parts of type text, which are joined.
#pragma once

#include <cstddef>
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
  bool is_target = true;                // of the assistant: unless OpenAI's `weight` is 0
  std::vector<std::size_t> seams = {};  // bytes of content where a further text of a list begins
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

// Replaces `messages` by those of a line. nullopt: all of them are text, and one is a target.
std::optional<JsonLineProblem> read_chat(std::string_view line, std::vector<ChatMessage>& messages);

}  // namespace ms::data
