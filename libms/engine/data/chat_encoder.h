// Conversations to tokens: renders each through a chat template, and marks what the assistant does not say as ignored
// by the loss (target_mask.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "data/chat_template.h"
#include "data/tokenizer.h"

namespace ms::data {

class ChatEncoder {
 public:
  // Both outlive it. `trains_on_all`: nothing is marked. Error("data.template", user): a special token of the template
  // is not one token of the tokenizer.
  ChatEncoder(const ChatTemplate& format, const Tokenizer& tokenizer, bool trains_on_all);

  const ChatTemplate& format() const { return format_; }
  bool trains_on_all() const { return trains_on_all_; }

  // Memory of encode(), to be used again.
  struct Scratch {
    std::vector<ChatMessage> messages;
    RenderedChat chat;
    bool has_control = false;  // a content holds the text of a special token of the template, which becomes that token
    std::size_t answer = 0;    // of chat.answers: the first that may reach into the next piece
    std::vector<std::int32_t> prefix;
  };
  // Appends the tokens of a conversation in JSON. Its text is in scratch.chat then. nullopt: all is well.
  std::optional<JsonLineProblem> encode(std::string_view line, std::vector<std::int32_t>& tokens,
                                        Scratch& scratch) const;

 private:
  void encode_piece(std::string_view text, std::size_t begin, std::vector<std::int32_t>& tokens,
                    Scratch& scratch) const;

  const ChatTemplate& format_;
  const Tokenizer& tokenizer_;
  bool trains_on_all_;
};

}  // namespace ms::data
