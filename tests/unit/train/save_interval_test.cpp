#include "train/checkpoint/save_interval.h"

#include <gtest/gtest.h>

#include "ckpt/interval.h"

namespace ms::train {
namespace {

constexpr double kDay_s = 86'400;

TEST(SaveInterval, IsTheConfiguredOneOrTheBest) {
  CheckpointConfig config;
  EXPECT_EQ(save_interval_s(config, {}, kDay_s), config.every_s);
  EXPECT_EQ(save_interval_s(config, 2.0, kDay_s), config.every_s);
  config.every_s = 0;
  EXPECT_EQ(save_interval_s(config, 2.0, kDay_s), 0);
  config.mtbf_s = 7000;
  EXPECT_EQ(save_interval_s(config, 2.0, kDay_s), ckpt::daly_interval_s(2, 7000));
  EXPECT_EQ(save_interval_s(config, {}, kDay_s), 0);
}

TEST(SaveInterval, AutoFollowsFailuresWithinBounds) {
  CheckpointConfig config;
  config.every_s = kNumberWord;
  EXPECT_EQ(save_interval_s(config, {}, kDay_s), 600);  // after which the cost of a save is known
  EXPECT_EQ(save_interval_s(config, 2.0, kDay_s), ckpt::daly_interval_s(2, kDay_s));
  EXPECT_EQ(save_interval_s(config, 0.0, kDay_s), 60);
  EXPECT_EQ(save_interval_s(config, 300.0, 300 * kDay_s), 3600);
  config.mtbf_s = 7000;  // what the user knows counts
  EXPECT_EQ(save_interval_s(config, 2.0, kDay_s), ckpt::daly_interval_s(2, 7000));
}

TEST(SaveInterval, TheUsualRateIsThatOfLlama3) {
  EXPECT_NEAR(usual_mtbf_s(2048), 54 * kDay_s / 419, 1e-6);
  EXPECT_NEAR(usual_mtbf_s(1) / kDay_s, 264, 0.1);
}

}  // namespace
}  // namespace ms::train
