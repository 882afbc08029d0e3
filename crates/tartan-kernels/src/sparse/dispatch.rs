//! One loop, compiled for several instruction sets. The results are the same to the bit: no set changes the order of
//! a sum, and products and sums are rounded one by one.

/// Compile a loop for AVX-512, AVX2 and the baseline, and ask the machine which it has.
macro_rules! dispatch {
    ($visible:vis $name:ident, $avx512:ident, $avx2:ident, $body:ident, [$($generic:tt)*], [$($turbofish:tt)*],
     ($($argument:ident: $type:ty),*)) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt,bmi1,bmi2")]
        unsafe fn $avx512 $($generic)* ($($argument: $type),*) {
            $body $($turbofish)* ($($argument),*);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
        unsafe fn $avx2 $($generic)* ($($argument: $type),*) {
            $body $($turbofish)* ($($argument),*);
        }

        $visible fn $name $($generic)* ($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                let basics = is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2");
                if basics
                    && is_x86_feature_detected!("avx512vpopcntdq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the features that the function is compiled for were just found.
                    return unsafe { $avx512 $($turbofish)* ($($argument),*) };
                }
                if basics && is_x86_feature_detected!("avx2") {
                    // SAFETY: the features that the function is compiled for were just found.
                    return unsafe { $avx2 $($turbofish)* ($($argument),*) };
                }
            }
            $body $($turbofish)* ($($argument),*);
        }
    };
}

pub(crate) use dispatch;
