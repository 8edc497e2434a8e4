#pragma once
#include "base/low.h"
#include "tensor/device.h"
