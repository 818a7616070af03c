//! The table of operations: the wire field of each Rust field, and the [`Form`] of its JSON.
//!
//! Operands are the fields that name tensors; those under `inputs` are read and those under `outputs` written. Reading,
//! writing, JSON and the operand lists all come from this one table. A parameter that is `[optional]` has its type's
//! default where JSON lacks it; one that is `[omitted]` is also left out of JSON where it has that default.

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use serde_json::{Map, Value};

use crate::field::Field;
use crate::form::{Form, INPUTS, OUTPUTS, PARAMETERS, Writer};
use crate::generated as fb;
use crate::node::*;
use crate::{GraphError, TensorUid, Uids};

fn tensors_of(field: &impl Field) -> impl Iterator<Item = TensorUid> {
    let mut uids = Uids::new();
    field.tensors(&mut uids);
    uids.into_iter()
}

/// The value as text, unless it names tensors or was not given.
fn attribute<T: Field>(name: &'static str, field: &T) -> Option<(&'static str, String)> {
    if T::IS_OPERAND { None } else { field.text().map(|text| (name, text)) }
}

macro_rules! present {
    ($group:expr, $key:expr) => {
        $group.field($key)
    };
    ($group:expr, $key:expr, $presence:ident) => {
        $group.field_or_default($key)
    };
}

macro_rules! put {
    ($writer:expr, $key:expr, $field:expr, omitted) => {
        $writer.put_unless_default(PARAMETERS, $key, $field)
    };
    ($writer:expr, $key:expr, $field:expr $(, optional)?) => {
        $writer.put(PARAMETERS, $key, $field)
    };
}

macro_rules! operations {
    ($($variant:ident($table:ident, $args:ident, $accessor:ident) as $form:ident {
        inputs { $($input:ident: $input_wire:ident),* }
        outputs { $($output:ident: $output_wire:ident),* }
        parameters { $($parameter:ident: $parameter_wire:ident $([$presence:ident])?),* }
        $(geometry $nested:ident: $Nested:ident { $($member:ident: $member_wire:ident),* })?
    })*) => {
        impl Operation {
            /// The name of the attributes table, such as `ConvolutionFwdAttributes`.
            pub const fn kind(&self) -> &'static str {
                match self { $(Operation::$variant(_) => stringify!($table)),* }
            }

            /// Every name that [`Operation::kind`] gives, in the order of the wire numbers.
            pub const KINDS: &'static [&'static str] = &[$(stringify!($table)),*];

            /// The tensors that are read, in the order of the wire format; repeated if named twice.
            pub fn inputs(&self) -> Uids {
                let mut uids = Uids::new();
                match self { $(Operation::$variant(_operation) => { $(_operation.$input.tensors(&mut uids);)* })* }
                uids
            }

            /// The tensors that are written, in the order of the wire format.
            pub fn outputs(&self) -> Uids {
                let mut uids = Uids::new();
                match self { $(Operation::$variant(_operation) => { $(_operation.$output.tensors(&mut uids);)* })* }
                uids
            }

            /// The operation with other names for its tensors.
            pub fn renamed(&self, rename: &mut dyn FnMut(TensorUid) -> TensorUid) -> Operation {
                let mut renamed = self.clone();
                match &mut renamed { $(Operation::$variant(_operation) => {
                    $(_operation.$input.rename(rename);)*
                    $(_operation.$output.rename(rename);)*
                    $(_operation.$parameter.rename(rename);)*
                })* }
                renamed
            }

            /// The tensors that are read, each with the wire format's name of its field, such as `x_tensor_uid`.
            pub fn named_inputs(&self) -> Vec<(&'static str, TensorUid)> {
                let mut named = Vec::new();
                match self { $(Operation::$variant(_operation) => {
                    $(named.extend(tensors_of(&_operation.$input).map(|uid| (stringify!($input_wire), uid)));)*
                })* }
                named
            }

            /// The tensors that are written, each with the wire format's name of its field.
            pub fn named_outputs(&self) -> Vec<(&'static str, TensorUid)> {
                let mut named = Vec::new();
                match self { $(Operation::$variant(_operation) => {
                    $(named.extend(tensors_of(&_operation.$output).map(|uid| (stringify!($output_wire), uid)));)*
                })* }
                named
            }

            /// Everything else that was given: the wire format's name and the value as text.
            pub fn attributes(&self) -> Vec<(&'static str, String)> {
                let mut attributes = Vec::new();
                match self { $(Operation::$variant(_operation) => {
                    $(attributes.extend(attribute(stringify!($input_wire), &_operation.$input));)*
                    $(attributes.extend(attribute(stringify!($parameter_wire), &_operation.$parameter));)*
                    $($(attributes.extend(attribute(stringify!($member_wire), &_operation.$nested.$member));)*)?
                })* }
                attributes
            }

            pub(crate) fn read(index: usize, node: fb::Node<'_>) -> Result<Operation, GraphError> {
                match node.attributes_type() {
                    $(fb::NodeAttributes::$table => {
                        let table = node.$accessor().ok_or_else(|| GraphError::Malformed(
                            format!("node {index} ({}): no attributes", stringify!($table))))?;
                        let unknown = |field: &str, reason: String| GraphError::Unknown(
                            format!("node {index} ({}): {field}: {reason}", stringify!($table)));
                        Ok(Operation::$variant($variant {
                            $($input: Field::read(table.$input_wire())
                                .map_err(|r| unknown(stringify!($input_wire), r))?,)*
                            $($output: Field::read(table.$output_wire())
                                .map_err(|r| unknown(stringify!($output_wire), r))?,)*
                            $($parameter: Field::read(table.$parameter_wire())
                                .map_err(|r| unknown(stringify!($parameter_wire), r))?,)*
                            $($nested: $Nested {
                                $($member: Field::read(table.$member_wire())
                                    .map_err(|r| unknown(stringify!($member_wire), r))?,)*
                            },)?
                        }.into()))
                    })*
                    fb::NodeAttributes::NONE => Err(GraphError::Malformed(format!("node {index}: no attributes"))),
                    other => Err(GraphError::Unknown(format!("node {index}: attributes of kind {}", other.0))),
                }
            }

            pub(crate) fn write(
                &self,
                fbb: &mut FlatBufferBuilder<'_>,
            ) -> (fb::NodeAttributes, WIPOffset<UnionWIPOffset>) {
                match self {
                    $(Operation::$variant(operation) => {
                        let args = fb::$args {
                            $($input_wire: operation.$input.write(fbb),)*
                            $($output_wire: operation.$output.write(fbb),)*
                            $($parameter_wire: operation.$parameter.write(fbb),)*
                            $($($member_wire: operation.$nested.$member.write(fbb),)*)?
                        };
                        (fb::NodeAttributes::$table, fb::$table::create(fbb, &args).as_union_value())
                    })*
                }
            }

            pub(crate) fn from_json(kind: &str, node: &Map<String, Value>) -> Result<Operation, String> {
                match kind {
                    $(stringify!($table) => {
                        let [_inputs, _outputs, _parameters] = Form::$form.groups(node)?;
                        Ok(Operation::$variant($variant {
                            $($input: _inputs.field(stringify!($input_wire))?,)*
                            $($output: _outputs.field(stringify!($output_wire))?,)*
                            $($parameter: present!(_parameters, stringify!($parameter_wire) $(, $presence)?)?,)*
                            $($nested: $Nested {
                                $($member: _parameters.field(stringify!($member_wire))?,)*
                            },)?
                        }.into()))
                    })*
                    other => Err(crate::field::expected("the name of an attributes table", &Value::from(other))),
                }
            }

            /// Adds `type` and the fields to a JSON node.
            pub(crate) fn to_json(&self, node: &mut Map<String, Value>) {
                node.insert("type".into(), Value::from(self.kind()));
                match self {
                    $(Operation::$variant(operation) => {
                        let form = Form::$form;
                        let mut writer = Writer::new(form);
                        $(writer.put(INPUTS, stringify!($input_wire), &operation.$input);)*
                        $(writer.put(OUTPUTS, stringify!($output_wire), &operation.$output);)*
                        $(put!(writer, stringify!($parameter_wire), &operation.$parameter $(, $presence)?);)*
                        $($(writer.put(PARAMETERS, stringify!($member_wire), &operation.$nested.$member);)*)?
                        writer.finish(node);
                    })*
                }
            }
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn the_table_is_in_the_order_of_the_wire_numbers() {
                let numbers = [$(fb::NodeAttributes::$table.0),*];
                assert_eq!(numbers.to_vec(), (1..=23).collect::<Vec<u8>>());
            }
        }
    };
}

operations! {
    BatchnormInference(BatchnormInferenceAttributes, BatchnormInferenceAttributesArgs, attributes_as_batchnorm_inference_attributes) as GROUPED {
        inputs {
            x: x_tensor_uid, mean: mean_tensor_uid, inv_variance: inv_variance_tensor_uid,
            scale: scale_tensor_uid, bias: bias_tensor_uid
        }
        outputs { y: y_tensor_uid }
        parameters { }
    }
    Pointwise(PointwiseAttributes, PointwiseAttributesArgs, attributes_as_pointwise_attributes) as GROUPED {
        inputs {
            mode: operation, relu_lower_clip: relu_lower_clip, relu_upper_clip: relu_upper_clip,
            relu_lower_clip_slope: relu_lower_clip_slope, axis: axis_tensor_uid, in_0: in_0_tensor_uid,
            in_1: in_1_tensor_uid, in_2: in_2_tensor_uid, swish_beta: swish_beta, elu_alpha: elu_alpha,
            softplus_beta: softplus_beta
        }
        outputs { out_0: out_0_tensor_uid }
        parameters { }
    }
    BatchnormBackward(BatchnormBackwardAttributes, BatchnormBackwardAttributesArgs, attributes_as_batchnorm_backward_attributes) as GROUPED {
        inputs {
            dy: dy_tensor_uid, x: x_tensor_uid, mean: mean_tensor_uid, inv_variance: inv_variance_tensor_uid,
            scale: scale_tensor_uid, peer_stats: peer_stats_tensor_uid
        }
        outputs { dx: dx_tensor_uid, dscale: dscale_tensor_uid, dbias: dbias_tensor_uid }
        parameters { }
    }
    Batchnorm(BatchnormAttributes, BatchnormAttributesArgs, attributes_as_batchnorm_attributes) as GROUPED {
        inputs {
            x: x_tensor_uid, scale: scale_tensor_uid, bias: bias_tensor_uid, epsilon: epsilon_tensor_uid,
            peer_stats: peer_stats_tensor_uid, prev_running_mean: prev_running_mean_tensor_uid,
            prev_running_variance: prev_running_variance_tensor_uid, momentum: momentum_tensor_uid
        }
        outputs {
            y: y_tensor_uid, mean: mean_tensor_uid, inv_variance: inv_variance_tensor_uid,
            next_running_mean: next_running_mean_tensor_uid,
            next_running_variance: next_running_variance_tensor_uid
        }
        parameters { }
    }
    ConvolutionFwd(ConvolutionFwdAttributes, ConvolutionFwdAttributesArgs, attributes_as_convolution_fwd_attributes) as GROUPED {
        inputs { x: x_tensor_uid, w: w_tensor_uid }
        outputs { y: y_tensor_uid }
        parameters { }
        geometry convolution: Convolution {
            pre_padding: pre_padding, post_padding: post_padding, stride: stride, dilation: dilation,
            mode: conv_mode
        }
    }
    ConvolutionBwd(ConvolutionBwdAttributes, ConvolutionBwdAttributesArgs, attributes_as_convolution_bwd_attributes) as GROUPED {
        inputs { dy: dy_tensor_uid, w: w_tensor_uid }
        outputs { dx: dx_tensor_uid }
        parameters { }
        geometry convolution: Convolution {
            pre_padding: pre_padding, post_padding: post_padding, stride: stride, dilation: dilation,
            mode: conv_mode
        }
    }
    ConvolutionWrw(ConvolutionWrwAttributes, ConvolutionWrwAttributesArgs, attributes_as_convolution_wrw_attributes) as GROUPED {
        inputs { x: x_tensor_uid, dy: dy_tensor_uid }
        outputs { dw: dw_tensor_uid }
        parameters { }
        geometry convolution: Convolution {
            pre_padding: pre_padding, post_padding: post_padding, stride: stride, dilation: dilation,
            mode: conv_mode
        }
    }
    BatchnormInferenceVarianceExt(BatchnormInferenceAttributesVarianceExt, BatchnormInferenceAttributesVarianceExtArgs, attributes_as_batchnorm_inference_attributes_variance_ext) as GROUPED {
        inputs {
            x: x_tensor_uid, mean: mean_tensor_uid, variance: variance_tensor_uid, scale: scale_tensor_uid,
            bias: bias_tensor_uid, epsilon: epsilon_tensor_uid
        }
        outputs { y: y_tensor_uid }
        parameters { }
    }
    Matmul(MatmulAttributes, MatmulAttributesArgs, attributes_as_matmul_attributes) as GROUPED {
        inputs { a: a_tensor_uid, b: b_tensor_uid }
        outputs { c: c_tensor_uid }
        parameters { }
    }
    RmsNorm(RMSNormAttributes, RMSNormAttributesArgs, attributes_as_rmsnorm_attributes) as SPARSE {
        inputs { x: x_tensor_uid, scale: scale_tensor_uid, epsilon: epsilon_tensor_uid, bias: bias_tensor_uid }
        outputs { y: y_tensor_uid, inv_rms: inv_rms_tensor_uid }
        parameters { forward_phase: forward_phase [omitted] }
    }
    Layernorm(LayernormAttributes, LayernormAttributesArgs, attributes_as_layernorm_attributes) as NUMBERED {
        inputs { x: x_tensor_uid, scale: scale_tensor_uid, bias: bias_tensor_uid, epsilon: epsilon_tensor_uid }
        outputs { y: y_tensor_uid, mean: mean_tensor_uid, inv_variance: inv_variance_tensor_uid }
        parameters { normalized_dim_count: normalized_dim_count, forward_phase: forward_phase [optional] }
    }
    Sdpa(SdpaAttributes, SdpaAttributesArgs, attributes_as_sdpa_attributes) as ATTRIBUTES {
        inputs {
            q: q_tensor_uid, k: k_tensor_uid, v: v_tensor_uid, attn_mask: attn_mask_tensor_uid,
            scale: scale_tensor_uid, seq_len_q: seq_len_q_tensor_uid, seq_len_kv: seq_len_kv_tensor_uid,
            seed: seed_tensor_uid, offset: offset_tensor_uid, dropout_mask: dropout_mask_tensor_uid,
            dropout_scale: dropout_scale_tensor_uid, page_table_k: page_table_k_tensor_uid,
            page_table_v: page_table_v_tensor_uid, block_mask: block_mask_tensor_uid,
            sink_token: sink_token_tensor_uid, descale_q: descale_q_tensor_uid, descale_k: descale_k_tensor_uid,
            descale_v: descale_v_tensor_uid, descale_s: descale_s_tensor_uid, scale_s: scale_s_tensor_uid,
            scale_o: scale_o_tensor_uid
        }
        outputs {
            o: o_tensor_uid, stats: stats_tensor_uid, max: max_tensor_uid, sum_exp: sum_exp_tensor_uid,
            rng_dump: rng_dump_tensor_uid, amax_s: amax_s_tensor_uid, amax_o: amax_o_tensor_uid
        }
        parameters {
            generate_stats: generate_stats, alibi_mask: alibi_mask, padding_mask: padding_mask,
            causal_mask: causal_mask, causal_mask_bottom_right: causal_mask_bottom_right,
            dropout_probability: dropout_probability, attn_scale_value: attn_scale_value, left_bound: left_bound,
            right_bound: right_bound, max_seq_len_kv: max_seq_len_kv, diagonal_alignment: diagonal_alignment,
            mma_core_mode: mma_core_mode, implementation: implementation
        }
    }
    BlockScaleDequantize(BlockScaleDequantizeAttributes, BlockScaleDequantizeAttributesArgs, attributes_as_block_scale_dequantize_attributes) as SPARSE {
        inputs { x: x_tensor_uid, scale: scale_tensor_uid }
        outputs { y: y_tensor_uid }
        parameters { block_size: block_size [optional], is_negative_scale: is_negative_scale [optional] }
    }
    BlockScaleQuantize(BlockScaleQuantizeAttributes, BlockScaleQuantizeAttributesArgs, attributes_as_block_scale_quantize_attributes) as SPARSE {
        inputs { x: x_tensor_uid }
        outputs { y: y_tensor_uid, scale: scale_tensor_uid }
        parameters { block_size: block_size [omitted], axis: axis, transpose: transpose [optional] }
    }
    SdpaBackward(SdpaBackwardAttributes, SdpaBackwardAttributesArgs, attributes_as_sdpa_backward_attributes) as GROUPED {
        inputs {
            q: q_tensor_uid, k: k_tensor_uid, v: v_tensor_uid, o: o_tensor_uid, d_o: do_tensor_uid,
            stats: stats_tensor_uid, attn_mask: attn_mask_tensor_uid, scale: scale_tensor_uid,
            seq_len_q: seq_len_q_tensor_uid, seq_len_kv: seq_len_kv_tensor_uid, seed: seed_tensor_uid,
            offset: offset_tensor_uid, dropout_mask: dropout_mask_tensor_uid,
            dropout_scale: dropout_scale_tensor_uid, dropout_scale_inv: dropout_scale_inv_tensor_uid
        }
        outputs { dq: dq_tensor_uid, dk: dk_tensor_uid, dv: dv_tensor_uid, dbias: dbias_tensor_uid }
        parameters {
            alibi_mask: alibi_mask, padding_mask: padding_mask, causal_mask: causal_mask,
            causal_mask_bottom_right: causal_mask_bottom_right, dropout_probability: dropout_probability,
            attn_scale_value: attn_scale_value, left_bound: left_bound, right_bound: right_bound,
            diagonal_alignment: diagonal_alignment
        }
    }
    CustomOp(CustomOpAttributes, CustomOpAttributesArgs, attributes_as_custom_op_attributes) as FLAT {
        inputs { inputs: input_tensor_uids }
        outputs { outputs: output_tensor_uids }
        parameters { custom_op_id: custom_op_id, data: data }
    }
    RmsNormBackward(RMSNormBackwardAttributes, RMSNormBackwardAttributesArgs, attributes_as_rmsnorm_backward_attributes) as SPARSE {
        inputs { dy: dy_tensor_uid, x: x_tensor_uid, scale: scale_tensor_uid, inv_rms: inv_rms_tensor_uid }
        outputs { dx: dx_tensor_uid, dscale: dscale_tensor_uid, dbias: dbias_tensor_uid }
        parameters { }
    }
    Reduction(ReductionAttributes, ReductionAttributesArgs, attributes_as_reduction_attributes) as FLAT {
        inputs { input: in_tensor_uid }
        outputs { output: out_tensor_uid }
        parameters { mode: mode, is_deterministic: is_deterministic [optional] }
    }
    ResampleFwd(ResampleFwdAttributes, ResampleFwdAttributesArgs, attributes_as_resample_fwd_attributes) as FLAT_NUMBERED {
        inputs { x: x_tensor_uid }
        outputs { y: y_tensor_uid, index: index_tensor_uid }
        parameters {
            pre_padding: pre_padding, post_padding: post_padding, stride: stride, window: window,
            resample_mode: resample_mode, padding_mode: padding_mode, generate_index: generate_index
        }
    }
    LayernormBackward(LayernormBackwardAttributes, LayernormBackwardAttributesArgs, attributes_as_layernorm_backward_attributes) as NUMBERED {
        inputs {
            dy: dy_tensor_uid, x: x_tensor_uid, scale: scale_tensor_uid, mean: mean_tensor_uid,
            inv_variance: inv_variance_tensor_uid, epsilon: epsilon_tensor_uid
        }
        outputs { dx: dx_tensor_uid, dscale: dscale_tensor_uid, dbias: dbias_tensor_uid }
        parameters { normalized_dim_count: normalized_dim_count }
    }
    ResampleBwd(ResampleBwdAttributes, ResampleBwdAttributesArgs, attributes_as_resample_bwd_attributes) as FLAT_NUMBERED {
        inputs { dy: dy_tensor_uid, index: index_tensor_uid }
        outputs { dx: dx_tensor_uid }
        parameters {
            pre_padding: pre_padding, post_padding: post_padding, stride: stride, window: window,
            resample_mode: resample_mode, padding_mode: padding_mode
        }
    }
    MoeGroupedMatmul(MoeGroupedMatmulAttributes, MoeGroupedMatmulAttributesArgs, attributes_as_moe_grouped_matmul_attributes) as SPARSE {
        inputs {
            token: token_tensor_uid, weight: weight_tensor_uid, first_token_offset: first_token_offset_tensor_uid,
            token_index: token_index_tensor_uid, token_ks: token_ks_tensor_uid
        }
        outputs { output: output_tensor_uid }
        parameters { mode: mode, top_k: top_k }
    }
    MoeGroupedMatmulBwd(MoeGroupedMatmulBwdAttributes, MoeGroupedMatmulBwdAttributesArgs, attributes_as_moe_grouped_matmul_bwd_attributes) as SPARSE {
        inputs {
            doutput: doutput_tensor_uid, token: token_tensor_uid,
            first_token_offset: first_token_offset_tensor_uid
        }
        outputs { dweight: dweight_tensor_uid }
        parameters { }
    }
}
