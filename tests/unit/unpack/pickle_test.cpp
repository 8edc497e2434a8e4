// Pickles of plain data: values, memo, cut-off and damaged ones, and refusals of everything else.
#include "unpack/pickle.h"

#include <gmock/gmock.h>

#include <random>

#include "base/error.h"

namespace ms::unpack {
namespace {

using namespace std::string_literals;

std::string json_of(const std::string& pickle) { return pickle_to_json(pickle).text; }

std::string pickle_problem(const std::string& pickle, std::size_t max_json_bytes = 1 << 20) {
  try {
    pickle_to_json(pickle, max_json_bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), error.message().find("takes more") == std::string::npos ? "data.pickle" : "data.unread");
    EXPECT_EQ(error.blame(), Blame::user);
    return error.message();
  }
  return "";
}

TEST(Pickle, ReadsPlainData) {
  const struct {
    std::string pickle, json;
  } rows[] = {
      {"\x80\x02N."s, "null"},
      {"\x80\x02\x88."s, "true"},
      {"\x80\x02\x89."s, "false"},
      {"\x80\x02K\xff."s, "255"},
      {"\x80\x02M\x01\x02."s, "513"},
      {"\x80\x02J\xfe\xff\xff\xff."s, "-2"},
      {"\x80\x02\x8a\x00."s, "0"},
      {"\x80\x02\x8a\x01\xff."s, "-1"},
      {"\x80\x02\x8a\x08\xcf\x53\x66\x98\x94\xa5\xef\x17."s, "1724779239936775119"},
      {"\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."s, "9.223372036854776e+18"},
      {"\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\xff."s, "-9.223372036854776e+18"},
      {"\x80\x02G?\xf8\x00\x00\x00\x00\x00\x00."s, "1.5"},
      {"\x80\x02G\x7f\xf0\x00\x00\x00\x00\x00\x00."s, "null"},  // infinity
      {"\x80\x02X\x03\x00\x00\x00"
       "a\"\n."s,
       R"("a\"\u000a")"},
      {"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x02hi\x94."s, "\"hi\""},
      {"\x80\x02]q\x00(K\x01K\x02"
       "e."s,
       "[1,2]"},
      {"\x80\x02]K\x01"
       "a."s,
       "[1]"},
      {"\x80\x02(K\x01K\x02t."s, "[1,2]"},
      {"\x80\x02K\x01K\x02\x86."s, "[1,2]"},
      {"\x80\x02)."s, "[]"},
      {"\x80\x02}q\x00(X\x01\x00\x00\x00kK\x01K\x07K\x02u."s, R"({"k":1,"7":2})"},
      {"\x80\x02}X\x01\x00\x00\x00kNs."s, R"({"k":null})"},
      {"\x80\x02(X\x01\x00\x00\x00kK\x01"
       "d."s,
       R"({"k":1})"},
      {"\x80\x02]q\x05(X\x01\x00\x00\x00zq\x06h\x06"
       "e."s,
       R"(["z","z"])"},  // the memo shares
  };
  for (const auto& row : rows) EXPECT_EQ(json_of(row.pickle), row.json) << testing::PrintToString(row.pickle);
}

TEST(Pickle, ReadsAPickleOfAPickle) {
  const auto packed = [](const std::string& bytes) {
    return "\x80\x04"
           "C"s +
           static_cast<char>(bytes.size()) + bytes + ".";
  };
  std::string pickle = "\x80\x02}X\x01\x00\x00\x00kK\x07s."s;
  EXPECT_EQ(json_of(packed(pickle)), R"({"k":7})");
  EXPECT_TRUE(pickle_to_json(packed(pickle.substr(0, pickle.size() - 2))).is_cut_off);
  EXPECT_EQ(json_of(packed(R"({"k": 7})")), R"({"k": 7})");
  for (int i = 0; i < 20; ++i) pickle = packed(pickle);
  EXPECT_THAT(json_of(pickle), testing::StartsWith("\""));  // not to any depth
}

TEST(Pickle, RefusesWhatOnlyPythonMayRead) {
  const struct {
    std::string pickle, problem;
  } rows[] = {
      {"\x80\x02"
       "cos\nsystem\nX\x02\x00\x00\x00id\x85R."s,
       "would import os.system, which only Python may do"},
      {"\x80\x04\x8c\x02os\x8c\x06system\x93."s, "is more than plain data (opcode 0x93)"},
      {"\x80\x02K\x01"
       "R."s,
       "is more than plain data (opcode 0x52)"},
      {"\x80\x02K\x01"
       "Q."s,
       "opcode 0x51"},
      {"\x80\x02."s, "has no value"},
      {"\x80\x02"
       "a."s,
       "takes a value where there is none"},
      {"\x80\x02K\x01K\x02"
       "a."s,
       "adds to what is no container"},
      {"\x80\x02"
       "e."s,
       "closes a container that was never opened"},
      {"\x80\x02}(K\x01u."s, "has a key without a value"},
      {"\x80\x02}]K\x01s."s, "has a key that is neither text nor a number"},
      {"\x80\x02h\x07."s, "recalls a value that was never remembered"},
      {"\x80\x02q\x07."s, "remembers a value where there is none"},
      {"\x80\x02\x8a\x41" + std::string(65, 'x') + "."s, "has a number beyond all measure"},
      {"\x80\x02]q\x00h\x00"
       "a."s,
       "nests too deeply"},  // a list that holds itself
  };
  for (const auto& row : rows) EXPECT_THAT(pickle_problem(row.pickle), testing::HasSubstr(row.problem));
}

// Forty lists, each of which holds the one before twice: a trillion numbers.
TEST(Pickle, StopsAtSharedValuesThatGrow) {
  std::string pickle = "\x80\x02]q"s + '\0' +
                       "(K\x01K\x02"
                       "e"s;
  for (int i = 1; i < 40; ++i) {
    pickle += "]q"s + static_cast<char>(i) + "(h"s + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "e";
  }
  EXPECT_THAT(pickle_problem(pickle + "."), testing::HasSubstr("grows beyond all measure"));
}

TEST(Pickle, KeepsWhatCameBeforeTheCut) {
  const std::string whole =
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "a]q\x01(K\x01K\x02K\x03"
      "eX\x01\x00\x00\x00"
      "bK\x04u."s;
  EXPECT_EQ(json_of(whole), R"({"a":[1,2,3],"b":4})");
  for (std::size_t size = 6; size < whole.size(); ++size) {
    const PickledJson part = pickle_to_json(whole.substr(0, size));
    EXPECT_TRUE(part.is_cut_off) << size;
    EXPECT_THAT(part.text, testing::StartsWith("{")) << size;
  }
  EXPECT_EQ(json_of(whole.substr(0, whole.size() - 12)), R"({"a":[1,2]})");
}

// A list or dict of one item takes it only when it is whole.
TEST(Pickle, KeepsWhatCameOfAnItemBeforeTheCut) {
  const struct {
    std::string pickle, json;
  } rows[] = {
      {"\x80\x02]}(X\x01\x00\x00\x00kK\x07"s, R"([{"k":7}])"},
      {"\x80\x02}X\x01\x00\x00\x00kK\x07"s, R"({"k":7})"},
      {"\x80\x02}X\x01\x00\x00\x00k"s, "{}"},
      {"\x80\x02}(X\x01\x00\x00\x00s}X\x01\x00\x00\x00"
       "e]}(X\x01\x00\x00\x00kK\x07"s,
       R"({"s":{},"e":[{"k":7}]})"},
      {"\x80\x02(K\x01"s, ""},  // a tuple by itself
  };
  for (const auto& row : rows) {
    if (row.json.empty()) {
      EXPECT_THAT(pickle_problem(row.pickle), testing::HasSubstr("has no value"));
    } else {
      EXPECT_EQ(json_of(row.pickle), row.json);
    }
  }
}

// Each byte is a value of its own: 32 times as much memory.
TEST(Pickle, StopsAtValuesThatTakeMuchMemory) {
  const struct {
    std::string what;
    std::size_t count;
  } rows[] = {{"N", 20'000'000}, {"(", 50'000'000}, {"]a", 14'000'000}};
  for (const auto& row : rows) {
    std::string pickle = "\x80\x02]";
    for (std::size_t i = 0; i < row.count; ++i) pickle += row.what;
    EXPECT_THAT(pickle_problem(pickle + "."), testing::HasSubstr("takes more than 512.0 MiB"));
  }
  EXPECT_THAT(pickle_problem(std::string(kMaxPickleBytes + 1, 'N')), testing::HasSubstr("of more than 128.0 MiB"));
}

// What classes and functions were to make stays what they were to be given.
TEST(Pickle, KeepsObjectsAsData) {
  const std::string bytes =
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aczoo\nKeeper\nq\x01K\x07\x85\x81}X\x01\x00\x00\x00kK\x08s"
      "bX\x01\x00\x00\x00"
      "bccollections\nOrderedDict\n)RX\x01\x00\x00\x00xK\x09sX\x01\x00\x00\x00"
      "cX\x02\x00\x00\x00idQX\x01\x00\x00\x00"
      "dh\x01X\x01\x00\x00\x00"
      "e\x8f(K\x01\x90u.behind"s;
  const Pickle pickle(bytes);
  EXPECT_EQ(pickle.size_bytes(), bytes.size() - 6);
  const PickleValue root = pickle.root(), a = root.find("a"), b = root.find("b");
  EXPECT_EQ(root.size(), 5U);
  EXPECT_EQ(a.global(), "zoo.Keeper");
  EXPECT_EQ(a.arguments().item(0).integer(), 7);
  EXPECT_EQ(a.state().find("k").integer(), 8);
  EXPECT_FALSE(a.is_dict());
  EXPECT_TRUE(b.is_dict());
  EXPECT_EQ(b.find("x").integer(), 9);
  EXPECT_TRUE(b.find("y").is_none());
  EXPECT_EQ(root.find("c").reference().text(), "id");
  EXPECT_EQ(root.find("d").global(), "zoo.Keeper");
  EXPECT_TRUE(root.find("d").arguments().is_none());
  EXPECT_EQ(root.find("e").items().size(), 1U);
  EXPECT_TRUE(PickleValue().is_none());
  EXPECT_EQ(PickleValue().global(), "");
}

std::string object_problem(const std::string& bytes, std::size_t max_memory_bytes = 1 << 20) {
  try {
    const Pickle pickle(bytes, max_memory_bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), error.message().find("takes more") == std::string::npos ? "data.pickle" : "data.unread");
    return error.message();
  }
  return "";
}

TEST(Pickle, RefusesDamagedObjects) {
  const struct {
    std::string pickle, problem;
  } rows[] = {
      {"\x80\x02]K\x01", "ends early"},
      {"\x80\x02"
       "cos\nsystem",
       "has no value"},
      {"\x80\x02R.", "takes a value where there is none"},
      {"\x80\x02K\x01\x93.", "takes a value where there is none"},
      {"\x80\x02(ios\nsystem\n.", "opcode 0x69"},
      {"\x80\x02\x97.", "opcode 0x97"},
      {"\x80\x02" + std::string(100'000, 'N') + ".", "takes more than 1.0 MiB"},
      {"\x80\x02N" + std::string(60'000, 'Q') + ".", "takes more than 1.0 MiB"},
  };
  for (const auto& row : rows) EXPECT_THAT(object_problem(row.pickle), testing::HasSubstr(row.problem));
}

// An argument that is an object with an argument, and so on: nothing goes down all of it.
TEST(Pickle, KeepsNestedObjects) {
  constexpr int kDepth = 200'000;
  std::string bytes = "\x80\x02";
  for (int i = 0; i < kDepth; ++i) bytes += "ca\nb\n";
  bytes += "N";
  for (int i = 0; i < kDepth; ++i) bytes += "\x85R";
  bytes += ".";
  const Pickle pickle(bytes);  // which keeps no copy
  EXPECT_EQ(pickle.root().global(), "a.b");
}

TEST(Pickle, CallsNothingButNamesAndWhatCallsGive) {
  for (const std::string callable : {"N", "K\x01", "U\x01x", "]", "}", "K\x01Q"}) {
    for (const char* call : {")R.", ")\x81.", ")}\x92."})
      EXPECT_THAT(object_problem("\x80\x02" + callable + call), testing::HasSubstr("neither a function")) << callable;
  }
  for (const std::string callable : {"cbuiltins\ngetattr\n", "cdill._dill\n_load_type\n",
                                     "ccloudpickle.cloudpickle\n_make_skeleton_class\n", "cfunctools\npartial\n"}) {
    for (const char* call : {")R)R.", ")R)\x81.", ")R)}\x92."})
      EXPECT_EQ(object_problem("\x80\x02" + callable + call), "") << callable;
  }
}

TEST(Pickle, SurvivesDamage) {
  const std::string whole =
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "a]q\x01(K\x01K\x02K\x03"
      "eX\x01\x00\x00\x00"
      "bh\x01u."s;
  const std::string opcodes = "(.012BCGJKMNTUX]adehjlqrstu)}cRbQ\x80\x81\x85\x86\x87\x8a\x92\x93\x94";
  std::mt19937 random(1);
  int survived = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (unsigned i = 0; i <= random() % 4; ++i)
      damaged[random() % damaged.size()] =
          round % 2 == 0 ? static_cast<char>(random()) : opcodes[random() % opcodes.size()];
    try {
      pickle_to_json(damaged, 1 << 16);
      ++survived;
      const Pickle pickle(damaged, 1 << 16);
      for (const PickleValue& value : pickle.root().items()) value.arguments().state().find(value.global());
    } catch (const Error& error) { ASSERT_EQ(error.kind(), "data.pickle") << error.what(); }
  }
  EXPECT_GT(survived, 100);
}

}  // namespace
}  // namespace ms::unpack
