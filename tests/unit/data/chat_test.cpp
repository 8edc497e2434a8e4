// Conversations: what is read and refused, how templates render them, and which of their tokens are targets. The
// nightly test golden_chat_peer compares with transformers.
#include "data/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/chat_encoder.h"
#include "data/chat_template.h"
#include "data/encode.h"
#include "data/file_tokenizer.h"
#include "data/target_mask.h"
#include "data/train_tokenizer.h"
#include "token_files.h"

namespace ms::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Messages = std::vector<ChatMessage>;

constexpr ChatRole kSystem = ChatRole::system, kUser = ChatRole::user, kAssistant = ChatRole::assistant;

TEST(Chat, IsReadInBothForms) {
  const struct {
    const char* line;
    Messages messages;
  } kRows[] = {
      {R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"content":"b","role":"assistant"}]})",
       {{kSystem, "S"}, {kUser, "a"}, {kAssistant, "b"}}},
      {R"({"id":1,"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"\u00e9\n"}]})",
       {{kUser, "a"}, {kAssistant, "\xc3\xa9\n"}}},
      {R"({"system":"S","conversations":[{"from":"human","value":""},{"from":"gpt","value":"b"}]})",
       {{kSystem, "S"}, {kUser, ""}, {kAssistant, "b"}}},
      {R"({"tools":[],"system":"","messages":[{"role":"assistant","content":"b","tool_calls":null}]})",
       {{kAssistant, "b"}}},
      {R"({"system":null,"conversations":[{"role":"user","content":"a"},{"from":"chatgpt","value":"b"}]})",
       {{kUser, "a"}, {kAssistant, "b"}}},
      {R"({"messages":[{"role":"assistant","content":"a","weight":0},{"role":"assistant","content":"b","weight":1}]})",
       {{kAssistant, "a", false}, {kAssistant, "b"}}},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"\u00e9"},{"type":"text","text":""},{"type":"text","text":"b"}]},)"
       R"({"role":"assistant","content":[{"type":"text","text":"c"}]}]})",
       {{kUser,
         "\xc3\xa9"
         "b",
         true,
         {2, 2}},
        {kAssistant, "c"}}},
      {R"({"conversations":[{"from":"human","value":[]},{"from":"gpt","value":"b"}]})",
       {{kUser, ""}, {kAssistant, "b"}}},
  };
  for (const auto& row : kRows) {
    Messages messages{{kUser, "old"}};
    const auto problem = read_chat(row.line, messages);
    EXPECT_FALSE(problem) << row.line << ": " << problem->what;
    EXPECT_EQ(messages, row.messages) << row.line;
  }
}

TEST(Chat, IsRefusedWithWhatIsWrong) {
  const struct {
    const char *line, *what;
  } kRows[] = {
      {"{", ""},
      {"[]", "neither"},
      {R"({"text":"a"})", "neither 'messages' nor 'conversations'"},
      {R"({"messages":[]})", "not a list with messages"},
      {R"({"messages":{"role":"user"}})", "not a list with messages"},
      {R"({"messages":["a"]})", "message 1 has no text 'role'"},
      {R"({"messages":[{"role":"user","content":"a"}]})", "no message of the assistant is a target"},
      {R"({"messages":[{"role":"assistant"}]})", "message 1 has no text 'content'"},
      {R"({"messages":[{"role":"assistant","content":null}]})", "message 1 has no text 'content'"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}}]}]})",
       "message 1 has a part of type 'image_url'"},
      {R"({"messages":[{"role":"assistant","content":"a"},{"role":"user","content":[{"type":"input_audio"}]}]})",
       "message 2 has a part of type 'input_audio'"},
      {R"({"messages":[{"role":"user","content":["a"]}]})", "message 1 has no text 'type' in part 1"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":null}]}]})", "no text 'text' in part 1"},
      {R"({"messages":[{"role":"assistant","content":{"type":"text","text":"a"}}]})", "has no text 'content'"},
      {R"({"messages":[{"role":"assistant","content":"a","weight":0}]})", "no message of the assistant is a target"},
      {R"({"messages":[{"role":"assistant","content":"a","weight":0.5}]})", "'weight'"},
      {R"({"messages":[{"role":"assistant","content":"a","thinking":"b"}]})", "has 'thinking'"},
      {R"({"system":["S"],"messages":[{"role":"assistant","content":"a"}]})", "'system'"},
      {R"({"system_prompt":"S","messages":[{"role":"assistant","content":"a"}]})", "has 'system_prompt'"},
      {R"({"system":"S","messages":[{"role":"system","content":"T"},{"role":"assistant","content":"a"}]})", "two"},
      {R"({"messages":[{"role":"assistant","content":"a"},{"role":"tool","content":"b"}]})",
       "message 2 has the role 'tool'"},
      {R"({"messages":[{"role":"assistant","content":"a","tool_calls":[{}]}]})", "has 'tool_calls'"},
      {R"({"messages":[{"role":"assistant","content":"a","reasoning_content":"b"}]})", "has 'reasoning_content'"},
      {R"({"tools":[{}],"messages":[{"role":"assistant","content":"a"}]})", "it has 'tools'"},
  };
  for (const auto& row : kRows) {
    Messages messages;
    const auto problem = read_chat(row.line, messages);
    ASSERT_TRUE(problem) << row.line;
    EXPECT_THAT(problem->what, HasSubstr(row.what)) << row.line;
  }
}

std::string rendered(std::string_view name, const Messages& messages) {
  RenderedChat chat;
  const auto problem = render(chat_template(name), messages, chat);
  return problem ? "refused: " + problem->what : chat.text;
}
std::string answers(std::string_view name, const Messages& messages) {
  RenderedChat chat;
  EXPECT_FALSE(render(chat_template(name), messages, chat));
  std::string text;
  for (const auto& [begin, end] : chat.answers) text += "[" + chat.text.substr(begin, end - begin) + "]";
  return text;
}

TEST(ChatTemplates, HaveTheDetailsOfTheirFamilies) {
  const Messages plain{{kUser, " hi "}, {kAssistant, "\nyo\n"}},
      system{{kSystem, "S"}, {kUser, "a"}, {kAssistant, "b"}};
  const std::string qwen_system =
      "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n";
  EXPECT_EQ(rendered("chatml", plain), "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n\nyo\n<|im_end|>\n");
  EXPECT_EQ(rendered("qwen2.5", plain), qwen_system + rendered("chatml", plain));
  EXPECT_EQ(rendered("qwen2.5", system), rendered("chatml", system));
  // An empty system prompt is one: no default takes its place.
  EXPECT_EQ(rendered("qwen2.5", {{kSystem, ""}, {kAssistant, "b"}}),
            "<|im_start|>system\n<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
  EXPECT_EQ(rendered("qwen3", plain),
            "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nyo\n<|im_end|>\n");
  // The last answer alone, and only to a query.
  EXPECT_EQ(rendered("qwen3", {{kAssistant, "a"}}), "<|im_start|>assistant\na<|im_end|>\n");
  EXPECT_EQ(rendered("qwen3", {{kUser, "q"}, {kAssistant, "a"}, {kUser, "r"}}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n");
  EXPECT_EQ(rendered("llama3", plain),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nyo<|eot_id|>");
  EXPECT_EQ(rendered("llama3", {{kAssistant, "\xc2\xa0\x1c x\xe3\x80\x80"}}),
            "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\nx<|eot_id|>");
  EXPECT_EQ(rendered("gemma", plain),
            "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nyo<end_of_turn>\n");
  EXPECT_EQ(rendered("gemma3", {{kSystem, " S"}, {kUser, " a"}, {kAssistant, "b"}}),
            "<bos><start_of_turn>user\n S\n\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n");
  EXPECT_EQ(rendered("phi3", plain), "<|user|>\n hi <|end|>\n<|assistant|>\n\nyo\n<|end|>\n<|endoftext|>");
  EXPECT_EQ(rendered("phi3", {{kSystem, ""}, {kAssistant, "b"}}),
            "<|system|>\n<|end|>\n<|assistant|>\nb<|end|>\n<|endoftext|>");
  EXPECT_EQ(rendered("phi3.5", {{kSystem, ""}, {kAssistant, "b"}}), "<|assistant|>\nb<|end|>\n<|endoftext|>");
  EXPECT_EQ(rendered("mistral", {{kUser, "a"}, {kAssistant, "b"}, {kUser, "c"}, {kAssistant, "d"}}),
            "<s>[INST] a [/INST]b</s>[INST] c [/INST]d</s>");
  EXPECT_EQ(rendered("mistral-v0.1", {{kUser, "a"}, {kAssistant, "b"}}), "<s>[INST] a [/INST]b</s> ");
}

TEST(ChatTemplates, PutADateIntoTheSystemMessageOfLlama) {
  const std::string head =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
      "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  const std::string turns =
      "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\nyo<|eot_id|>";
  const Messages plain{{kUser, " hi "}, {kAssistant, "\nyo\n"}}, system{{kSystem, " S\n"}, plain[0], plain[1]};
  EXPECT_EQ(rendered("llama3.1", plain), head + turns);
  EXPECT_EQ(rendered("llama3.1", system), head + "S" + turns);
  EXPECT_EQ(answers("llama3.1", plain), "[yo<|eot_id|>]");
  // A later one is rendered like the others.
  EXPECT_EQ(rendered("llama3.1", {plain[0], {kSystem, "S"}, plain[1]}),
            head +
                "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
                "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\nyo<|eot_id|>");
}

TEST(ChatTemplates, HaveTheControlTokensOfMistral) {
  const Messages plain{{kUser, " a "}, {kAssistant, "b"}, {kUser, "c"}, {kAssistant, " d"}};
  Messages system{{kSystem, "S"}};
  system.insert(system.end(), plain.begin(), plain.end());
  EXPECT_EQ(rendered("mistral-v3-tekken", plain), "<s>[INST] a [/INST]b</s>[INST]c[/INST] d</s>");
  EXPECT_THAT(rendered("mistral-v3-tekken", system), HasSubstr("no system message"));
  EXPECT_EQ(rendered("mistral-v7", plain), "<s>[INST]  a [/INST] b</s>[INST] c[/INST]  d</s>");
  EXPECT_EQ(rendered("mistral-v7", system),
            "<s>[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST]  a [/INST] b</s>[INST] c[/INST]  d</s>");
  EXPECT_EQ(answers("mistral-v7", plain), "[ b</s>][  d</s>]");
  EXPECT_EQ(rendered("mistral-v7-tekken", system),
            "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST] a [/INST]b</s>[INST]c[/INST] d</s>");
  EXPECT_THAT(rendered("mistral-v7-tekken", plain), HasSubstr("needs a system message"));
}

TEST(ChatTemplates, JoinTheTextsOfAList) {
  const Messages lists{{kUser, " a  b ", true, {3}}, {kAssistant, "c \n d", true, {2, 3}}};
  EXPECT_EQ(rendered("chatml", lists), "<|im_start|>user\n a  b <|im_end|>\n<|im_start|>assistant\nc \n d<|im_end|>\n");
  EXPECT_EQ(rendered("llama3", lists),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na  b<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nc \n d<|eot_id|>");
  EXPECT_EQ(rendered("gemma3", lists),
            "<bos><start_of_turn>user\nab<end_of_turn>\n<start_of_turn>model\ncd<end_of_turn>\n");
  EXPECT_EQ(answers("gemma3", lists), "[cd<end_of_turn>]");
  EXPECT_THAT(rendered("gemma3", {{kSystem, "ST", true, {1}}, {kUser, "a"}, {kAssistant, "b"}}),
              HasSubstr("the first text of a system message only"));
}

TEST(ChatTemplates, CountAnswersWithTheirEndOfTurn) {
  const Messages chat{{kUser, "a"}, {kAssistant, " b "}, {kUser, "c"}, {kAssistant, ""}};
  EXPECT_EQ(answers("chatml", chat), "[ b <|im_end|>][<|im_end|>]");
  EXPECT_EQ(answers("qwen3", chat), "[ b <|im_end|>][<think>\n\n</think>\n\n<|im_end|>]");
  EXPECT_EQ(answers("llama3", chat), "[b<|eot_id|>][<|eot_id|>]");
  EXPECT_EQ(answers("gemma", chat), "[b<end_of_turn>][<end_of_turn>]");
  EXPECT_EQ(answers("phi3", chat), "[ b <|end|>][<|end|>]");
  EXPECT_EQ(answers("mistral-v0.1", chat), "[ b </s>][</s>]");
  EXPECT_EQ(answers("chatml", {{kAssistant, "a", false}, {kAssistant, "b"}}), "[b<|im_end|>]");
}

TEST(ChatTemplates, RefuseWhatTheyDoNotRender) {
  const Messages system{{kSystem, "S"}, {kUser, "a"}, {kAssistant, "b"}};
  for (const char* name : {"gemma", "mistral", "mistral-v0.1"}) {
    EXPECT_THAT(rendered(name, system), HasSubstr("no system message")) << name;
    EXPECT_THAT(rendered(name, {{kAssistant, "b"}}), HasSubstr("assistant follows nothing")) << name;
  }
  EXPECT_THAT(rendered("gemma3", {{kUser, "a"}, {kSystem, "S"}, {kAssistant, "b"}}), HasSubstr("first one only"));
  EXPECT_THAT(rendered("gemma3", {{kUser, "a"}, {kUser, "a"}, {kAssistant, "b"}}), HasSubstr("user follows user"));
  EXPECT_THAT(rendered("qwen3", {{kUser, "a"}, {kAssistant, "<think>x</think>b"}}), HasSubstr("reasoning"));
  EXPECT_EQ(thrown_by([] { chat_template("alpaca"); }).kind(), "data.template");
}

TEST(ChatTemplates, OfATokenizerThatAreNotKnownAreRefused) {
  const TempDir dir;
  const auto refused = [&] {
    const Error error = thrown_by([&] { chat_template_beside(dir / "tokenizer.json"); });
    EXPECT_EQ(error.kind(), "data.template");
    EXPECT_EQ(error.blame(), Blame::user);
    return error.message();
  };
  EXPECT_THAT(refused(), HasSubstr("no chat template can be read"));
  spill(dir / "tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"x"}]})");
  EXPECT_THAT(refused(), HasSubstr("no chat template can be read"));
  spill(dir / "tokenizer_config.json", R"({"chat_template":"{{ messages }}"})");
  EXPECT_THAT(refused(), HasSubstr("tokenizer_config.json is not one"));
  spill(dir / "chat_template.jinja", "{{ messages }}");  // it comes first
  EXPECT_THAT(refused(), HasSubstr("chat_template.jinja is not one"));
}

// A tokenizer with the tokens of a template, in which "\n\n" is one.
std::unique_ptr<FileTokenizer> tokenizer_with(const std::vector<std::string>& special) {
  TokenizerSpec spec = untrained_tokenizer("llama3");
  WordCounter words(spec);
  words.add("a\n\nb\n\nc hello\n\nhello hello user assistant user assistant");
  std::vector<std::string_view> all{"<|endoftext|>"};
  all.insert(all.end(), special.begin(), special.end());
  std::vector<std::string> texts(all.begin(), all.end());
  train_bpe(words.counts(), 256 + static_cast<std::int64_t>(all.size()) + 30, texts, spec);
  return std::make_unique<FileTokenizer>("test", tokenizer_json(spec), std::nullopt);
}

// The tokens' texts, those that the loss counts in brackets.
std::string shown(const ChatEncoder& encoder, const Tokenizer& tokenizer, std::string_view line) {
  std::vector<std::int32_t> tokens;
  ChatEncoder::Scratch scratch;
  const auto problem = encoder.encode(line, tokens, scratch);
  EXPECT_FALSE(problem);
  std::string text;
  std::vector<std::int32_t> ids, whole;
  for (const std::int32_t token : tokens) {
    ids.push_back(token_id(token));
    const std::string one = tokenizer.decode(std::span(ids).last(1), true);
    text += token < 0 ? one : "[" + one + "]";
  }
  tokenizer.encode(scratch.chat.text, whole);
  EXPECT_EQ(ids, whole) << "pieces have other tokens than the whole";
  return text;
}

TEST(ChatEncoder, MarksAllButTheAnswers) {
  const auto tokenizer = tokenizer_with({"<|im_start|>", "<|im_end|>"});
  const ChatEncoder encoder(chat_template("chatml"), *tokenizer, false), all(chat_template("chatml"), *tokenizer, true);
  const char* line = R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"hello"}]})";
  EXPECT_EQ(shown(encoder, *tokenizer, line),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[hello][<|im_end|>]\n");
  EXPECT_THAT(shown(all, *tokenizer, line), ::testing::StartsWith("[<|im_start|>][user]"));
  // The token that holds the first byte of an answer counts, even if it begins before.
  EXPECT_EQ(shown(encoder, *tokenizer, R"({"messages":[{"role":"assistant","content":"\nhello"}]})"),
            "<|im_start|>assistant[\n\n][hello][<|im_end|>]\n");
}

TEST(ChatEncoder, SeesControlTokensThatTextsOfAListMake) {
  const auto tokenizer = tokenizer_with({"<bos>", "<start_of_turn>", "<end_of_turn>"});
  const ChatEncoder encoder(chat_template("gemma"), *tokenizer, false);
  const auto has_control = [&](std::string_view parts) {
    std::vector<std::int32_t> tokens;
    ChatEncoder::Scratch scratch;
    EXPECT_FALSE(encoder.encode(fmt::format(R"({{"messages":[{{"role":"user","content":[{}]}},{}]}})", parts,
                                            R"({"role":"assistant","content":"a"})"),
                                tokens, scratch));
    return scratch.has_control;
  };
  EXPECT_FALSE(has_control(R"({"type":"text","text":"<end_of"})"));
  EXPECT_TRUE(has_control(R"({"type":"text","text":"<end_of "},{"type":"text","text":" _turn>"})"));
}

TEST(ChatEncoder, RefusesATokenizerWithoutTheTokens) {
  const auto tokenizer = tokenizer_with({"<|im_start|>"});
  const ByteTokenizer bytes;
  for (const Tokenizer* other :
       {static_cast<const Tokenizer*>(tokenizer.get()), static_cast<const Tokenizer*>(&bytes)}) {
    const Error error = thrown_by([&] { ChatEncoder(chat_template("chatml"), *other, false); });
    EXPECT_EQ(error.kind(), "data.template");
    EXPECT_EQ(error.blame(), Blame::user);
  }
}

TEST(ChatEncoder, EncodesFilesWithoutAFrame) {
  const TempDir dir;
  const auto tokenizer = tokenizer_with({"<|im_start|>", "<|im_end|>"});
  const ChatEncoder encoder(chat_template("chatml"), *tokenizer, false);
  spill(dir / "chats.jsonl",
        R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"hello"}]}
{"messages":[{"role":"tool","content":"a"}]}
{"conversations":[{"from":"human","value":"b"},{"from":"gpt","value":"hello"}]}
)");
  EncodeOptions options;
  options.read.fields = {"messages"};
  options.chat = &encoder;
  const auto encoded = [&] {
    return encode(dir / "t", std::vector<std::string>{dir / "chats.jsonl"}, *tokenizer, note_of(*tokenizer, "byte", {}),
                  options);
  };
  EXPECT_EQ(thrown_by(encoded).kind(), "data.json");
  options.skip_bad_lines = true;
  const EncodeReport report = encoded();
  EXPECT_EQ(report.num_documents, 2);
  EXPECT_EQ(report.num_bad_lines, 1);
  const TokenFile file(dir / "t");
  EXPECT_EQ(file.num_targets(), 4);  // hello and the end of turn, twice
  std::vector<std::int32_t> last(1);
  file.read(file.num_tokens() - 1, last);
  EXPECT_NE(last[0], tokenizer->end_of_document());
}

}  // namespace
}  // namespace ms::data
