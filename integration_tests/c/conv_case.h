/* The graph that the C programs run: y = relu(conv(x, w) + b), 3x3 "same" padding, fp32, NCHW, as hipDNN JSON and as
 * plain loops. */
#ifndef CONV_CASE_H
#define CONV_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, CHANNELS = 5, HEIGHT = 9, WIDTH = 11, FILTERS = 7, TAPS = 3 };
enum { UID_X = 0, UID_W = 11, UID_B = -4, UID_Y = 70, UID_CONV = 2, UID_SUM = 3 };
enum {
    X_LEN = BATCH * CHANNELS * HEIGHT * WIDTH,
    W_LEN = FILTERS * CHANNELS * TAPS * TAPS,
    Y_LEN = BATCH * FILTERS * HEIGHT * WIDTH
};

static const char* const CONV_BIAS_RELU_JSON =
    "{\"name\":\"conv_bias_relu\",\"compute_data_type\":\"float\",\"intermediate_data_type\":\"float\","
    "\"io_data_type\":\"float\",\"is_override_shape_enabled\":false,\"tensors\":["
    "{\"uid\":0,\"name\":\"x\",\"data_type\":\"float\",\"dims\":[2,5,9,11],\"strides\":[495,99,11,1],"
    "\"virtual\":false,\"is_runtime_pass_by_value\":false},"
    "{\"uid\":11,\"name\":\"w\",\"data_type\":\"float\",\"dims\":[7,5,3,3],\"strides\":[45,9,3,1],"
    "\"virtual\":false,\"is_runtime_pass_by_value\":false},"
    "{\"uid\":-4,\"name\":\"b\",\"data_type\":\"float\",\"dims\":[1,7,1,1],\"strides\":[7,1,1,1],"
    "\"virtual\":false,\"is_runtime_pass_by_value\":false},"
    "{\"uid\":2,\"name\":\"conv\",\"data_type\":\"float\",\"dims\":[2,7,9,11],\"strides\":[693,99,11,1],"
    "\"virtual\":true,\"is_runtime_pass_by_value\":false},"
    "{\"uid\":3,\"name\":\"sum\",\"data_type\":\"float\",\"dims\":[2,7,9,11],\"strides\":[693,99,11,1],"
    "\"virtual\":true,\"is_runtime_pass_by_value\":false},"
    "{\"uid\":70,\"name\":\"y\",\"data_type\":\"float\",\"dims\":[2,7,9,11],\"strides\":[693,99,11,1],"
    "\"virtual\":false,\"is_runtime_pass_by_value\":false}],"
    "\"nodes\":["
    "{\"type\":\"ConvolutionFwdAttributes\",\"name\":\"conv\",\"compute_data_type\":\"float\","
    "\"inputs\":{\"x_tensor_uid\":0,\"w_tensor_uid\":11},\"outputs\":{\"y_tensor_uid\":2},"
    "\"parameters\":{\"conv_mode\":\"CROSS_CORRELATION\",\"pre_padding\":[1,1],\"post_padding\":[1,1],"
    "\"stride\":[1,1],\"dilation\":[1,1]}},"
    "{\"type\":\"PointwiseAttributes\",\"name\":\"bias\",\"compute_data_type\":\"float\","
    "\"inputs\":{\"operation\":\"add\",\"in_0_tensor_uid\":2,\"in_1_tensor_uid\":-4,\"in_2_tensor_uid\":null,"
    "\"axis_tensor_uid\":null,\"relu_lower_clip\":null,\"relu_upper_clip\":null,\"relu_lower_clip_slope\":null,"
    "\"swish_beta\":null,\"elu_alpha\":null,\"softplus_beta\":null},\"outputs\":{\"out_0_tensor_uid\":3}},"
    "{\"type\":\"PointwiseAttributes\",\"name\":\"relu\",\"compute_data_type\":\"float\","
    "\"inputs\":{\"operation\":\"relu_fwd\",\"in_0_tensor_uid\":3,\"in_1_tensor_uid\":null,\"in_2_tensor_uid\":null,"
    "\"axis_tensor_uid\":null,\"relu_lower_clip\":null,\"relu_upper_clip\":null,\"relu_lower_clip_slope\":null,"
    "\"swish_beta\":null,\"elu_alpha\":null,\"softplus_beta\":null},\"outputs\":{\"out_0_tensor_uid\":70}}]}";

/* Values in [-1, 1), the same on every machine. */
static void fill(float* values, size_t count, unsigned seed) {
    unsigned state = seed * 2654435761u + 1u;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* The largest difference between y and plain loops in double, relative to the bound that rounding allows: below 1 is
 * right. Each output sums n = 45 products and a bias in fp32, in any order, so its error is at most
 * (n + 2) * 2^-24 * sum |products| to first order (Higham, "Accuracy and Stability", 3.1); 2 covers second order. */
static double worst_error(const float* x, const float* w, const float* b, const float* y) {
    double worst = 0.0;
    for (int n = 0; n < BATCH; n++)
        for (int k = 0; k < FILTERS; k++)
            for (int p = 0; p < HEIGHT; p++)
                for (int q = 0; q < WIDTH; q++) {
                    double sum = b[k], magnitude = fabs((double)b[k]);
                    for (int c = 0; c < CHANNELS; c++)
                        for (int r = 0; r < TAPS; r++)
                            for (int s = 0; s < TAPS; s++) {
                                int i = p + r - 1, j = q + s - 1;
                                if (i < 0 || i >= HEIGHT || j < 0 || j >= WIDTH) continue;
                                double term = (double)x[((n * CHANNELS + c) * HEIGHT + i) * WIDTH + j] *
                                              (double)w[((k * CHANNELS + c) * TAPS + r) * TAPS + s];
                                sum += term;
                                magnitude += fabs(term);
                            }
                    double want = sum > 0.0 ? sum : 0.0;
                    double got = y[((n * FILTERS + k) * HEIGHT + p) * WIDTH + q];
                    double bound = 2.0 * (CHANNELS * TAPS * TAPS + 2) * ldexp(1.0, -24) * magnitude + 1e-30;
                    double error = fabs(got - want) / bound;
                    /* NaN compares false: make it the worst. */
                    if (!(error <= worst)) worst = error == error ? error : INFINITY;
                }
    return worst;
}

#endif
