#include <gtest/gtest.h>
#include "../../tools/ms-x.cpp"
#include "mesh/high.h"
