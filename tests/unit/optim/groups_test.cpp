// Groups of parameters: patterns, entries, and the rates that follow from them.
#include "optim/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace ms::optim {
namespace {

TEST(ParamGroups, Patterns) {
  struct Row {
    const char *pattern, *name;
    bool fits;
  };
  for (const Row& row : {Row{"a.b", "a.b", true}, Row{"a.b", "a.bc", false}, Row{"*", "", true},
                         Row{"embed.*", "embed.tokens.weight", true}, Row{"embed.*", "xembed.tokens", false},
                         Row{"*.bias", "layers.3.attn.q.bias", true}, Row{"*.bias", "bias", false},
                         Row{"layers.1.*", "layers.11.norm1.weight", false}, Row{"*norm*", "final_norm.weight", true},
                         Row{"a*b*c", "axxbbxc", true}, Row{"a*b*c", "axxcxb", false}, Row{"", "a", false},
                         Row{"", "", true}, Row{"a**", "a", true}, Row{"*a", "aba", true}, Row{"*ab", "aab", true}}) {
    EXPECT_EQ(matches(row.pattern, row.name), row.fits) << row.pattern << " " << row.name;
  }
  std::string pattern, name(500, 'a');
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(matches(pattern + "*b", name)) << "and not by trying all ways to place 200 stars";
}

TEST(ParamGroups, Entries) {
  const ParamGroup both = parse_group("embed.*  lr=0.5 weight_decay=0");
  EXPECT_EQ(both.pattern, "embed.*");
  EXPECT_EQ(both.lr, 0.5);
  EXPECT_EQ(both.weight_decay, 0.0);
  EXPECT_EQ(parse_group("* lr=2").weight_decay, std::nullopt);
  EXPECT_EQ(parse_group("* weight_decay=1e-2").lr, 1.0);
  struct Case {
    const char *entry, *message;
  };
  for (const Case& c :
       {Case{"", "takes a pattern"}, Case{"embed.*", "takes a pattern"},
        Case{"* rate=1", "'rate' is neither lr nor weight_decay"}, Case{"* lr", "lr takes a number from 0 to 1000"},
        Case{"* lr=", "lr takes a number"}, Case{"* lr=x", "lr takes a number"}, Case{"* lr=-1", "lr takes a number"},
        Case{"* weight_decay=nan", "weight_decay takes a number"}}) {
    try {
      parse_group(c.entry);
      ADD_FAILURE() << "'" << c.entry << "' is taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "optim.group");
      EXPECT_THAT(error.message(), testing::HasSubstr(c.message));
    }
  }
}

TEST(ParamGroups, Rates) {
  OptimConfig config;
  config.weight_decay = 0.1;
  config.groups = {"embed.* lr=0.5", "*.bias weight_decay=0.2", "* lr=3 weight_decay=0.3"};
  const std::vector<ParamGroup> groups = parse_groups(config);
  EXPECT_EQ(rates_of(config, groups, "embed.tokens.weight", true), (Rates{0.5, 0.1}));
  EXPECT_EQ(rates_of(config, groups, "layers.0.norm1.bias", false), (Rates{1, 0.2})) << "one that has none otherwise";
  EXPECT_EQ(rates_of(config, groups, "embed.bias", false), (Rates{0.5, 0})) << "the first that fits";
  EXPECT_EQ(rates_of(config, groups, "head.weight", true), (Rates{3, 0.3}));
  EXPECT_EQ(rates_of(config, {}, "head.weight", true), (Rates{1, 0.1}));
  EXPECT_EQ(rates_of(config, {}, "final_norm.weight", false), (Rates{1, 0}));
}

}  // namespace
}  // namespace ms::optim
